// @ts-check
/**
 * Who is signed in, and what he may see. The server decides; this only spares people buttons that would be refused.
 *
 *   const session = await whoAmI()      null when nobody is
 *   may(session, "jobs:write")          roles: viewer jobs:read, operator jobs:write, admin everything
 *
 * @typedef {object} Session
 * @property {boolean} auth False: the server asks nobody for a key.
 * @property {string} key_id
 * @property {string} key_name
 * @property {"viewer" | "operator" | "admin"} role
 * @property {string[]} scopes
 * @property {string} requester_id
 * @property {string[] | null} teams Null: all.
 * @property {number | null} expires_at
 */
import { CallsheetError, del, get, post } from "./api.js";

/** @returns {Promise<Session | null>} */
export async function whoAmI() {
  try {
    return await get("/studio/session");
  } catch (error) {
    if (error instanceof CallsheetError && error.status === 401) return null;
    throw error;
  }
}

/** @param {string} key @returns {Promise<Session>} */
export const signIn = (key) => post("/studio/session", { key });

/** @returns {Promise<void>} */
export const signOut = () => del("/studio/session");

/** @param {Session | null} session @param {string} scope */
export function may(session, scope) {
  return session !== null && (session.scopes.includes(scope) || session.scopes.includes("admin"));
}
