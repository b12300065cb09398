// Elements. Text is always set as text, never as markup.

// el makes an element: el('td.num', {title: 'x', onclick: f}, child, 'text').
export function el(spec, attrs = {}, ...children) {
  const [tag, ...classes] = spec.split('.');
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(' ');
  for (const [name, value] of Object.entries(attrs)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c != null));
  return node;
}

// text sets the text of a node if it is another one, so that a selection stays.
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

// attr sets an attribute, or takes it away for null.
export function attr(node, name, value) {
  if (value == null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// keyed makes the children of parent follow a list: a child stays the same element for as long as
// its key exists, so that focus and scrolling stay.
export function keyed(parent, list, keyOf, make, update) {
  const known = new Map();
  for (const child of parent.children) known.set(child.key, child);
  const focused = document.activeElement;
  let at = parent.firstElementChild;
  for (const item of list) {
    const key = keyOf(item);
    let child = known.get(key);
    if (child) known.delete(key);
    else {
      child = make(item);
      child.key = key;
    }
    child.item = item;
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update(child, item);
  }
  for (const child of known.values()) child.remove();
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({preventScroll: true});
}

// table makes a table of columns {head, cls, sort, fill(td, item), make(td, row)}:
// make runs once for a cell, fill each time. On a phone a row is a block whose
// cells are named by data-head.
export function table(label, columns) {
  const heads = columns.map((c) => el('th', {scope: 'col', class: c.cls}, c.head || el('span.hidden', {}, 'Actions')));
  const body = el('tbody');
  const node = el('table', {}, el('caption.hidden', {}, label), el('thead', {}, el('tr', {}, ...heads)), body);
  const row = () => {
    const tr = el('tr');
    columns.forEach((c, i) => {
      const td = el(i ? 'td' : 'th', {class: c.cls, 'data-head': c.head, scope: i ? null : 'row'});
      if (c.make) c.make(td, tr);
      tr.append(td);
    });
    return tr;
  };
  return {
    node, heads, body,
    update(list, keyOf) {
      keyed(body, list, keyOf, row, (tr, item) => columns.forEach((c, i) => c.fill && c.fill(tr.children[i], item, tr)));
    },
  };
}

// two sets the two lines of a cell; the second is quiet, and may be empty.
export function two(cell, first, second, title) {
  if (!cell.firstElementChild) cell.append(el('div'), el('div.quiet'));
  text(cell.children[0], first);
  text(cell.children[1], second || '');
  attr(cell, 'title', title);
}

// say shows a problem in a part of the page, or takes it away for null.
export function say(node, problem) {
  node.hidden = !problem;
  text(node, problem ? problem.line() : '');
}
