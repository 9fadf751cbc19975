// A flame graph: callers above those that they call, width by value, colour by module. Used by the pages of
// `sheaf profile --output FILE.html` and of `sheaf serve`.

const ROW = 22; // pixels of a function
const NARROW = 1; // pixels; narrower functions are not drawn
const READABLE = 20; // pixels; narrower ones have no name
const PALETTE = ["#3f6f9f", "#a8591a", "#a84448", "#35787a", "#427f3b", "#7d6510", "#84577d", "#9c4f63", "#77583f", "#62626d"];
const GREY = "#6a6a74";

/** One colour for each module, the same in all pages. */
function colour(node) {
  const name = (node.module || node.place || "").split("/").pop();
  if (!name) return GREY;
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0);
  return PALETTE[sum % PALETTE.length];
}

function described(node, total, amount) {
  const error = node.error ? ` ± ${amount(node.error)}` : "";
  const lines = [`${amount(node.value)}${error} (${(total ? (100 * node.value) / total : 0).toFixed(2)}%)`];
  if (node.unreliable) lines.push("unreliable: too few samples");
  return [...lines, node.function ?? node.name, node.place, node.module].filter(Boolean).join("\n");
}

/** The boxes of a tree in rows, each with its place from 0 to 1; those above `focus` have the whole width. */
function boxes(root, focus, narrow) {
  const found = [];
  const path = [];
  for (let one = focus; one; one = one.above) path.unshift(one);
  path.slice(0, -1).forEach((node, depth) => found.push({ node, depth, left: 0, width: 1 }));
  const waiting = [{ node: focus, depth: path.length - 1, left: 0, width: 1 }];
  while (waiting.length > 0) {
    const box = waiting.pop();
    found.push(box);
    let left = box.left;
    for (const child of box.node.children) {
      const width = box.node.value ? (box.width * child.value) / box.node.value : 0;
      child.above = box.node;
      if (width >= narrow) waiting.push({ node: child, depth: box.depth + 1, left, width });
      left += width;
    }
  }
  return found;
}

/**
 * Draw `tree` in an element, or draw it again. A node has `name`, `value`, `children`, and may have `error`, `unreliable`,
 * `function`, `place` and `module`. `amount` makes texts of values; `faded` says which nodes a search leaves out.
 */
export function drawFlame(element, tree, amount, faded = () => false) {
  let focus = element.flame?.tree === tree ? element.flame.focus : tree;
  const draw = () => {
    const width = Math.max(100, element.clientWidth);
    const drawn = boxes(tree, focus, NARROW / width);
    const parts = drawn.map(({ node, depth, left, width: share }) => {
      const box = document.createElement("div");
      const pixels = share * width;
      box.className = "box";
      box.title = described(node, tree.value, amount);
      box.textContent = pixels >= READABLE ? node.name : "";
      Object.assign(box.style, {
        position: "absolute", left: `${100 * left}%`, width: `max(1px, calc(${100 * share}% - 1px))`, top: `${depth * ROW}px`,
        height: `${ROW - 1}px`, lineHeight: `${ROW - 1}px`, padding: pixels >= READABLE ? "0 4px" : "0", overflow: "hidden",
        boxSizing: "border-box", whiteSpace: "nowrap", textOverflow: "ellipsis", cursor: "pointer", borderRadius: "2px",
        color: "#ffffff", background: colour(node), opacity: faded(node) ? 0.25 : 1,
      });
      if (pixels >= READABLE) box.tabIndex = 0;
      const zoom = () => {
        focus = node;
        draw();
      };
      box.addEventListener("click", zoom);
      box.addEventListener("keydown", (event) => event.key === "Enter" && zoom());
      return box;
    });
    const rows = drawn.reduce((most, box) => Math.max(most, box.depth + 1), 1);
    Object.assign(element.style, { position: "relative", height: `${rows * ROW}px` });
    element.replaceChildren(...parts);
    element.flame.focus = focus;
  };
  element.flame?.observer.disconnect();
  const observer = new ResizeObserver(([entry]) => {
    if (entry.contentRect.width === element.flame.width) return;
    element.flame.width = entry.contentRect.width;
    draw();
  });
  element.flame = { tree, focus, observer, width: element.clientWidth };
  draw();
  observer.observe(element);
}
