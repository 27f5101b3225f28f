// @ts-check
/**
 * Light or dark, before the first paint: this is a plain script and not a module, so that no page flashes.
 * What the person chose is kept in localStorage under `callsheet.theme` (light, dark); without it the system decides.
 */
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("callsheet.theme");
    } catch {
      return null; // storage is forbidden here
    }
  };
  const apply = () => {
    document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
  };
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
  addEventListener("callsheet:theme", apply);
  apply();
})();
