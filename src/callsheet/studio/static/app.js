// @ts-check
/**
 * The studio's beginning: who is signed in, the shell around the pages, and the change from page to page.
 *
 * Read on in `pages/index.js` (what pages there are), `router.js` (what a page gets), `api.js` (how it asks the server),
 * `components/` (what it is made of) and `styles/tokens.css` (how that looks).
 */
import { onConnection, onSignedOut } from "./api.js";
import { openDialog } from "./components/dialog.js";
import { trouble } from "./components/states.js";
import { toastError } from "./components/toast.js";
import { fill, h, icon, iconButton, link } from "./dom.js";
import { listen } from "./keyboard.js";
import { GROUPS, PAGES } from "./pages/index.js";
import notFound from "./pages/not_found.js";
import { askForKey } from "./pages/sign_in.js";
import { begin, go, match } from "./router.js";
import { may, signOut, whoAmI } from "./session.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const live = h("div", { class: "visually-hidden", role: "status", "aria-live": "polite", id: "announcer" });
const banner = h("div", { class: "banner", role: "alert", hidden: true }, icon("alert"), "The server does not answer; trying again.");
const main = h("main", { class: "main", id: "main", tabindex: "-1" });
/** @type {import("./session.js").Session | null} */
let session = null;
let page = new AbortController();
let asking = false;
document.body.append(live);

/** @param {string} text */
function announce(text) {
  live.textContent = "";
  setTimeout(() => (live.textContent = text), 50);
}

/** The pages that somebody may see in the navigation. */
const visible = () => PAGES.filter((entry) => entry.nav && may(session, entry.scope ?? "jobs:read"));

function shell() {
  const theme = iconButton("Light or dark", "sun", { onclick: changeTheme });
  const find = h("input", { class: "input", type: "search", placeholder: "Job id, or words in a job", "aria-label": "Search jobs", data: { search: "" }, maxlength: "200", onkeydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && find.value.trim()) search(find.value.trim());
  } });
  const nav = () => GROUPS.map((group) => {
    const entries = visible().filter((entry) => entry.nav?.group === group);
    return entries.length ? h("div", null, h("h2", null, group), h("ul", null, entries.map((entry) => h("li", null, navLink(entry))))) : null;
  });
  const side = h("aside", { class: "side" },
    link("/studio", { class: "brand", "aria-label": "Callsheet, to the overview" }, icon("callsheet"), h("span", null, "Callsheet")),
    h("nav", { class: "nav", "aria-label": "Pages" }, nav()), who());
  const top = h("header", { class: "top" },
    link("/studio", { class: "brand", "aria-label": "Callsheet, to the overview" }, icon("callsheet"), h("span", null, "Callsheet")),
    h("div", { class: "find", role: "search" }, icon("search"), find, h("kbd", { "aria-hidden": "true" }, "/")),
    h("div", { class: "tools" }, iconButton("Keyboard", "help", { onclick: help }), theme));
  fill(app, h("div", { class: "shell" }, side, h("div", { class: "page" }, top, banner, main)), tabBar(nav));
}

/** @param {import("./router.js").PageEntry} entry */
function navLink(entry) {
  return link(entry.path, { data: { nav: entry.path } }, icon(entry.nav?.icon ?? "file"), h("span", null, entry.title));
}

/** The bar at the bottom of a phone; the rest is behind More. @param {() => (HTMLElement | null)[]} nav */
function tabBar(nav) {
  const more = h("button", { type: "button", onclick: () => {
    const box = openDialog("Pages", [h("nav", { class: "nav", "aria-label": "All pages", onclick: () => box.close() }, nav()), who()], { class: "drawer" });
    mark();
  } }, icon("more"), h("span", null, "More"));
  return h("nav", { class: "tabs", "aria-label": "Main pages" }, visible().filter((entry) => entry.nav?.tab).slice(0, 4).map(navLink), more);
}

function who() {
  if (!session) return null;
  const name = session.auth ? session.key_name || session.key_id : "No keys asked";
  return h("div", { class: "who" },
    h("div", { class: "row" }, h("div", { class: "clip" }, h("strong", { class: "clip" }, name), h("div", { class: "quiet clip" }, session.auth ? `${session.role}${session.teams ? ` · ${session.teams.join(", ") || "no team"}` : " · all teams"}` : "open to this machine")),
      session.auth ? iconButton("Sign out", "out", { onclick: leave }) : null));
}

async function leave() {
  try {
    await signOut();
  } catch (error) {
    toastError(error, "You are still signed in");
    return;
  }
  await ask("");
}

/** @param {string} text */
function search(text) {
  const id = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
  go(id.test(text) ? `/studio/jobs/${text.toLowerCase()}` : `/studio/jobs?text=${encodeURIComponent(text)}`);
}

function changeTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("callsheet.theme", next);
  } catch {
    document.documentElement.dataset.theme = next; // for this page alone
    return;
  }
  dispatchEvent(new Event("callsheet:theme"));
}

function help() {
  /** @type {[string, string][]} */
  const rows = [["/", "Search"], ["j  k", "Next and previous row"], ["Enter", "Open the row"], ["x", "Tick the row"], ...visible().filter((entry) => entry.nav?.key).map((entry) => /** @type {[string, string]} */ ([`g  ${entry.nav?.key}`, entry.title])), ["?", "This list"], ["Esc", "Leave a field or a dialog"]];
  openDialog("Keyboard", h("dl", { class: "facts" }, rows.map(([key, text]) => [h("dt", null, key.split("  ").map((one) => [h("kbd", null, one), " "])), h("dd", null, text)])));
}

/** Mark where we are in the navigation. */
function mark() {
  const here = location.pathname.replace(/\/+$/, "");
  for (const one of document.querySelectorAll("[data-nav]")) {
    const path = /** @type {HTMLElement} */ (one).dataset.nav ?? "";
    const within = here === path || (path !== "/studio" && here.startsWith(`${path}/`));
    if (within) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

async function arrive() {
  page.abort();
  page = new AbortController();
  const { signal } = page;
  if (!session) return;
  const route = match(PAGES, location.pathname);
  mark();
  fill(main);
  /** @param {string} text */
  const title = (text) => {
    document.title = `${text} · Callsheet`;
  };
  const view = { main, params: route?.params ?? {}, query: new URLSearchParams(location.search), signal, session, title, announce };
  title(route?.page.title ?? "Not found");
  try {
    if (!route || !may(session, route.page.scope ?? "jobs:read")) notFound(view);
    else {
      const loaded = await route.page.load();
      if (signal.aborted) return;
      scrollTo(0, 0);
      main.focus({ preventScroll: true });
      announce(route.page.title);
      await loaded.default(view);
    }
  } catch (error) {
    if (!signal.aborted) fill(main, trouble(error, arrive));
  }
}

/** Ask for a key, and go on where we were. @param {string} why */
async function ask(why) {
  if (asking) return;
  asking = true;
  page.abort();
  session = null;
  document.querySelectorAll("dialog[open]").forEach((box) => /** @type {HTMLDialogElement} */ (box).close());
  session = await askForKey(app, why);
  asking = false;
  shell();
  await arrive();
}

onConnection((away) => {
  banner.hidden = !away;
  announce(away ? "The server does not answer; trying again." : "The server answers again.");
});
onSignedOut(() => session && ask("Your session has ended, or its key was revoked. Sign in again to go on where you were."));
begin(arrive);
listen(PAGES, help);
match(PAGES, location.pathname)?.page.load().catch(() => undefined); // comes while the session is asked for
session = await whoAmI();
if (session) {
  shell();
  await arrive();
} else await ask("");
