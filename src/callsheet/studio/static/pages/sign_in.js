// @ts-check
/** The one page without a session: an API key becomes a cookie. The key is sent once and kept nowhere. */
import { describe } from "../components/states.js";
import { field } from "../components/layout.js";
import { fill, h, icon } from "../dom.js";
import { signIn } from "../session.js";

/**
 * @param {HTMLElement} app @param {string} why Shown above the form; '' for nothing.
 * @returns {Promise<import("../session.js").Session>} Ends when somebody has signed in.
 */
export function askForKey(app, why) {
  return new Promise((done) => {
    const key = h("input", { class: "input mono", type: "password", name: "key", autocomplete: "current-password", placeholder: "cs_live_…", required: true, "aria-describedby": "fault" });
    const fault = h("p", { class: "fault", id: "fault", role: "alert" });
    const send = h("button", { type: "submit", class: "button first" }, "Sign in");
    const form = h("form", { class: "card", onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      send.disabled = true;
      fill(fault);
      key.removeAttribute("aria-invalid");
      try {
        const session = await signIn(key.value.trim());
        key.value = "";
        done(session);
      } catch (error) {
        const told = describe(error);
        fill(fault, told.title === "You are not signed in" ? told.text : `${told.title}. ${told.text}`);
        key.setAttribute("aria-invalid", "true");
        key.focus();
        send.disabled = false;
      }
    } },
      h("div", { class: "brand" }, icon("callsheet"), h("span", null, "Callsheet")),
      h("h1", null, "Sign in"),
      why ? h("p", { class: "note", data: { tone: "warn" } }, why) : null,
      field("API key", key), h("div", { class: "field" }, fault), send,
      h("p", { class: "small quiet" }, "The first start of ", h("code", null, "callsheet up"), " shows a key; ", h("code", null, "callsheet keys create"), " makes more. It is sent once and kept nowhere in this browser."));
    document.title = "Sign in · Callsheet";
    fill(app, h("main", { class: "signin", id: "main" }, form));
    key.focus();
  });
}
