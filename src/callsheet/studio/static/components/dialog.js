// @ts-check
/**
 * The browser's own dialog: focus stays in it, Escape leaves it, focus goes back to where it was.
 *
 *   if (await confirm("Cancel 3 jobs?", "Running ones are told to stop.", "Cancel them", "danger")) …
 *   const box = openDialog("Keyboard", content);  box.close()
 */
import { button, h, iconButton } from "../dom.js";

let count = 0;

/**
 * @param {string} title @param {import("../dom.js").Children} content
 * @param {{class?: string, onclose?: () => void}} [options] @returns {HTMLDialogElement}
 */
export function openDialog(title, content, { class: more = "", onclose } = {}) {
  const id = `dialog-${(count += 1)}`;
  const box = h("dialog", { class: `dialog ${more}`, "aria-labelledby": id },
    h("div", { class: "inside" },
      h("div", { class: "row" }, h("h2", { id }, title), iconButton("Close", "close", { onclick: () => box.close(), style: { "margin-left": "auto" } })),
      content));
  box.addEventListener("close", () => (box.remove(), onclose?.()));
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  box.showModal();
  return box;
}

/**
 * @param {string} title @param {import("../dom.js").Children} text @param {string} yes @param {string} [tone] @returns {Promise<boolean>}
 */
export function confirm(title, text, yes, tone = "first") {
  return new Promise((done) => {
    let said = false;
    const agree = button(yes, { tone, onclick: () => ((said = true), box.close()) });
    const box = openDialog(title, [h("p", { class: "wrap" }, text), h("div", { class: "actions" }, button("Back", { onclick: () => box.close() }), agree)], { onclose: () => done(said) });
    agree.focus();
  });
}
