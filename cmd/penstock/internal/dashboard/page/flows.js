// The list of open flows, its filter, and the page of it that is shown.

import {get} from './api.js';
import {showFlow} from './detail.js';
import {attr, el, say, table, text, two} from './dom.js';
import {bytes, count, exact, rate, span} from './format.js';
import {poll} from './poll.js';

const page = 50;
const most = 1000; // rows; beyond that a filter is of more use

let order = 'bytes';
let limit = page;
let list;
let reload;
let form;

const sorts = {Bytes: 'bytes', Age: 'age', Rate: 'rate'};

export function start() {
  form = document.getElementById('filter');
  list = table('Open flows', [
    {head: 'Flow', make: (td, tr) => td.append(el('button.link.id', {type: 'button', onclick: () => showFlow(tr.item.id, reload)})), fill: (td, f) => {
      text(td.firstChild, f.id);
      attr(td.firstChild, 'aria-label', 'Details of flow ' + f.id);
    }},
    {head: 'Client', cls: 'addr', fill: (td, f) => two(td, f.client, f.sni)},
    {head: 'Listener', cls: 'wide', fill: (td, f) => two(td, f.listener, f.route)},
    {head: 'Upstream', cls: 'addr', fill: (td, f) => two(td, f.upstream || '–', [f.group, f.member === f.upstream ? '' : f.member].filter(Boolean).join(' / '))},
    {head: 'State', fill: (td, f) => two(td, f.state, f.idle >= 1 ? 'idle ' + span(f.idle) : '')},
    {head: 'Path', cls: 'wide', fill: (td, f) => two(td, f.up.path + ' ↑ ' + f.down.path + ' ↓', '', [f.up.why && 'up: ' + f.up.why, f.down.why && 'down: ' + f.down.why].filter(Boolean).join('\n') || null)},
    {head: 'Bytes', cls: 'num', fill: (td, f) => two(td, bytes(f.up.bytes + f.down.bytes), bytes(f.up.bytes) + ' ↑', exact(f.up.bytes + f.down.bytes))},
    {head: 'Age', cls: 'num', fill: (td, f) => text(td, span(f.age))},
    {head: 'Rate', cls: 'num', fill: (td, f) => text(td, order === 'rate' ? rate(f.rate || 0) : '–')},
  ]);
  list.heads.forEach((th) => {
    const key = sorts[th.textContent];
    if (!key) return;
    th.replaceChildren(el('button.sort', {type: 'button', onclick: () => sortBy(key)}, th.textContent));
  });
  document.getElementById('flow-list').append(list.node);
  reload = poll(load, (err) => say(document.getElementById('flows-problem'), err));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    again();
  });
  form.addEventListener('reset', () => setTimeout(again));
  form.addEventListener('change', again);
  form.elements.sort.addEventListener('change', (event) => {
    event.stopPropagation();
    sortBy(event.target.value);
  });
  document.getElementById('more-flows').addEventListener('click', () => {
    limit = Math.min(limit + page, most);
    reload();
  });
  mark();
}

function sortBy(key) {
  order = key;
  mark();
  again();
}

function mark() {
  form.elements.sort.value = order;
  list.heads.forEach((th) => {
    const key = sorts[th.textContent];
    if (key) attr(th, 'aria-sort', key === order ? 'descending' : 'none');
  });
}

function again() {
  limit = page;
  reload();
}

// filterBy shows the flows that these conditions choose.
export function filterBy(conditions) {
  form.reset();
  for (const [name, value] of Object.entries(conditions)) form.elements[name].value = value;
  mark();
  again();
  document.getElementById('flows').scrollIntoView();
  document.getElementById('flows-title').focus({preventScroll: true});
}

async function load() {
  const q = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (name !== 'sort' && value.trim()) q.set(name, value.trim());
  const filtered = q.size > 0;
  q.set('sort', order);
  q.set('limit', limit);
  const answer = await get('/v1/flows?' + q);
  // A reader of the screen hears nothing of it: it changes all the time.
  list.update(answer.flows, (f) => f.id);
  const all = answer.flows.length === answer.matched;
  text(document.getElementById('flows-count'), filtered
    ? `${count(answer.matched)} of ${count(answer.total)} open flows match`
    : `${count(answer.total)} open` + (all ? '' : `, the first ${count(answer.flows.length)} by ${order}`));
  list.node.hidden = answer.flows.length === 0;
  const none = document.getElementById('no-flows');
  none.hidden = answer.flows.length > 0;
  text(none, filtered ? 'No open flow matches this filter.' : 'No flow is open.');
  const more = document.getElementById('more-flows');
  more.hidden = all || limit >= most;
  text(more, `Show ${page} more of ${count(answer.matched)}`);
  return order === 'rate' ? 1000 : 0;
}
