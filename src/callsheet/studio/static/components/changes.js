// @ts-check
/**
 * Pages that look again every few seconds draw only what is new: what stays keeps the focus, and a press on a button is
 * not lost because another one took its place.
 *
 *   const isNew = changes();
 *   if (isNew(told.keys)) table.rows(told.keys);
 */

/** Whether a value is another one than the last time. @returns {(value: unknown) => boolean} */
export function changes() {
  let last = "";
  return (value) => {
    const now = JSON.stringify(value) ?? "";
    if (now === last) return false;
    last = now;
    return true;
  };
}
