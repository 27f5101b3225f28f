// @ts-check
/**
 * All pages. To add one: a line here and a file beside this one whose default export is `(view) => …` (see `View` in
 * router.js). `nav` puts it in the navigation, `scope` hides it from keys that may not use it, `nav.key` is its letter
 * after `g`. The module is loaded when it is first opened.
 *
 * @type {readonly import("../router.js").PageEntry[]}
 */
export const PAGES = [
  { path: "/studio", title: "Overview", nav: { group: "Work", icon: "overview", key: "o", tab: true }, load: () => import("./overview.js") },
  { path: "/studio/jobs", title: "Jobs", nav: { group: "Work", icon: "jobs", key: "j", tab: true }, load: () => import("./jobs.js") },
  { path: "/studio/jobs/:id", title: "Job", load: () => import("./job.js") },
  { path: "/studio/dead-letters", title: "Dead letters", nav: { group: "Work", icon: "dead", key: "d" }, load: () => import("./dead_letters.js") },
  { path: "/studio/videos", title: "Videos", nav: { group: "Media", icon: "videos", key: "v", tab: true }, load: () => import("./videos.js") },
  { path: "/studio/videos/:id", title: "Video", load: () => import("./video.js") },
  { path: "/studio/search", title: "Search", nav: { group: "Media", icon: "search", key: "s", tab: true }, load: () => import("./search.js") },
  { path: "/studio/compose", title: "Compose", nav: { group: "Media", icon: "compose", key: "c" }, load: () => import("./compose.js") },
  { path: "/studio/webhooks", title: "Webhooks", nav: { group: "System", icon: "webhooks", key: "w" }, load: () => import("./webhooks.js") },
  { path: "/studio/workers", title: "Workers", scope: "admin", nav: { group: "System", icon: "workers", key: "r" }, load: () => import("./workers.js") },
  { path: "/studio/keys", title: "Keys", scope: "admin", nav: { group: "System", icon: "keys", key: "k" }, load: () => import("./keys.js") },
  { path: "/studio/quotas", title: "Quotas", nav: { group: "System", icon: "quotas", key: "q" }, load: () => import("./quotas.js") },
  { path: "/studio/audit", title: "Audit log", scope: "jobs:write", nav: { group: "System", icon: "audit", key: "a" }, load: () => import("./audit.js") },
];

/** Groups of the navigation, in their order. */
export const GROUPS = ["Work", "Media", "System"];
