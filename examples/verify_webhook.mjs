// Verify callbacks of Callsheet in Node, without any package. `node verify_webhook.mjs < vectors.json` checks the vectors
// of docs/guides/webhooks.md; copy `verify` into your own server, and give it the body's bytes as they came.
import { createHmac, timingSafeEqual } from "node:crypto";
import { pathToFileURL } from "node:url";

const same = (a, b) => a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));

export function verify(secret, headers, body, { nowS = Date.now() / 1000, seen = new Set() } = {}) {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const { "x-euterpe-timestamp": at = "", "x-euterpe-nonce": nonce = "", "x-euterpe-event-id": id = "" } = headers;
  if (!/^\d{1,12}$/.test(at) || Math.abs(nowS - Number(at)) > 300) throw new Error("the timestamp is too far from now");
  const expected = createHmac("sha256", key).update(`${at}.${nonce}.`).update(body).digest("hex");
  const given = (headers["x-euterpe-signature"] ?? "").split(",");
  if (!nonce || !given.some((one) => same(one.trim(), expected))) throw new Error("the signature does not fit");
  const event = JSON.parse(body);
  if (event.event_id !== id) throw new Error("the event's id is another one in the body");
  if (seen.has(nonce)) throw new Error("this very request came before");
  seen.add(nonce); // keep it for ten minutes, where all your processes see it
  return event;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  let text = "";
  for await (const chunk of process.stdin) text += chunk;
  const results = JSON.parse(text).map(({ secret, headers, body, now_s: nowS }) => {
    try {
      return verify(secret, headers, Buffer.from(body), { nowS }).event_id;
    } catch (error) {
      return { refused: error.message };
    }
  });
  console.log(JSON.stringify(results));
}
