// Requests, and numbers and elements for the page.

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** An error that the server explained, with its status. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The JSON at a path below the page; `body` makes it a POST. Throws Refused, or TypeError if there is no connection. */
export async function ask(path, body) {
  const options = { cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    Object.assign(options, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  }
  const answer = await fetch(path, options);
  let content;
  try {
    content = await answer.json();
  } catch {
    throw new Refused(answer.status, `the server answered with status ${answer.status}`);
  }
  if (!answer.ok) throw new Refused(answer.status, content.error ?? `status ${answer.status}`);
  return content;
}

/** The power of 1024 by which the largest of some sizes is best shown. */
export function scale(bytes) {
  const power = bytes > 0 ? Math.min(UNITS.length - 1, Math.floor(Math.log(bytes) / Math.log(1024))) : 0;
  return { divisor: 1024 ** power, unit: UNITS[power] };
}

/** Bytes in a readable unit. */
export function size(bytes) {
  const { divisor, unit } = scale(Math.abs(bytes));
  const value = bytes / divisor;
  return `${value >= 100 || divisor === 1 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
}

/** A count in readable form. */
export function count(n) {
  return n.toLocaleString("en");
}

/** A share from 0 to 1 as a percentage; a dash if it is not known. */
export function percent(share, digits = 0) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}%`;
}

/** How long ago a time in nanoseconds since 1970 is. */
export function age(timeNs) {
  const seconds = Math.max(0, Date.now() / 1000 - timeNs / 1e9);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

/** An element with attributes and children. Text is never taken as markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** The element with an id. */
export function at(id) {
  return document.getElementById(id);
}

/** Show or hide an element. */
export function show(node, visible) {
  node.hidden = !visible;
}
