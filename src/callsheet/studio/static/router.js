// @ts-check
/**
 * From paths to pages. A path is `/studio` and what follows; a page gets its parameters, its query and a signal that is
 * aborted when it is left. Links are plain `<a href="/studio/…">`: clicks on them are taken over here.
 *
 *   go("/studio/jobs?status=error")      to another page
 *   setQuery({ status: "error" })        change the query of this page, without a new page (saved links)
 *
 * @typedef {object} View What a page gets.
 * @property {HTMLElement} main Where it puts itself; it is empty.
 * @property {Record<string, string>} params Named parts of its path.
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal Aborted when the page is left: hand it to everything that goes on.
 * @property {import("./session.js").Session} session
 * @property {(text: string) => void} title Of the page, in the window and for screen readers.
 * @property {(text: string) => void} announce Say something to screen readers, politely.
 *
 * @typedef {object} PageEntry A line in `pages/index.js`.
 * @property {string} path `/studio/jobs/:id`; a `:name` is a parameter.
 * @property {string} title
 * @property {() => Promise<{default: (view: View) => unknown}>} load
 * @property {string} [scope] What a session needs to see it; jobs:read unless given.
 * @property {{group: string, icon: string, key?: string, tab?: boolean}} [nav] Its place in the navigation: `key` is the
 *   letter after `g`; `tab` puts it in the bar at the bottom of a phone.
 */

/** @type {(() => unknown) | null} */
let arrive = null;

/** Take over links and the history. `onArrive` is called for each new place. @param {() => unknown} onArrive */
export function begin(onArrive) {
  arrive = onArrive;
  addEventListener("popstate", onArrive);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !isOurs(url.pathname) || (url.hash && url.pathname === location.pathname)) return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
}

/** @param {string} pathname */
function isOurs(pathname) {
  return (pathname === "/studio" || pathname.startsWith("/studio/")) && !pathname.slice(pathname.lastIndexOf("/")).includes(".");
}

/** To another page. @param {string} path @param {{replace?: boolean}} [options] */
export function go(path, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  arrive?.();
}

/** Change this page's query; empty values leave it. @param {Record<string, string | string[] | null | undefined>} values */
export function setQuery(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : value ? [value] : []) query.append(name, one);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

/** @param {readonly PageEntry[]} pages @param {string} pathname @returns {{page: PageEntry, params: Record<string, string>} | null} */
export function match(pages, pathname) {
  const parts = pathname.replace(/\/+$/, "").split("/");
  for (const page of pages) {
    const params = fits(page.path.split("/"), parts);
    if (params) return { page, params };
  }
  return null;
}

/** @param {string[]} wanted @param {string[]} parts */
function fits(wanted, parts) {
  if (wanted.length !== parts.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [n, want] of wanted.entries()) {
    const part = parts[n] ?? "";
    if (want.startsWith(":")) {
      try {
        params[want.slice(1)] = decodeURIComponent(part);
      } catch {
        return null;
      }
    } else if (want !== part) return null;
  }
  return params;
}
