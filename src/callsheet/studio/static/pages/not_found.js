// @ts-check
/** A path that is no page. */
import { link } from "../dom.js";
import { empty } from "../components/states.js";

/** @param {import("../router.js").View} view */
export default function notFound(view) {
  view.title("Not found");
  view.main.append(empty("There is no such page", "The link is old, or was cut off on its way.", link("/studio", { class: "button" }, "To the overview")));
}
