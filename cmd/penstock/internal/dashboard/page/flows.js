// The list of open flows, its filter, which is in the page's address, and the end of all that
// the filter chooses.

import {get} from './api.js';
import {showFlow} from './detail.js';
import {endFlows} from './dialogs.js';
import {attr, el, keyed, say, table, text, two} from './dom.js';
import {bytes, count, exact, rate, span} from './format.js';
import {poll} from './poll.js';

const page = matchMedia('(max-width: 720px)').matches ? 10 : 50;
const most = 1000; // rows; beyond that a filter is of more use

let limit = page;
let list;
let reload;
let form;

const sorts = {Bytes: 'bytes', Age: 'age', Rate: 'rate'};
const order = () => form.elements.sort.value;

export function start() {
  form = document.getElementById('filter');
  list = table('Open flows', [
    {head: 'Flow', cls: 'ident', make: (td, tr) => td.append(el('button.link.id', {type: 'button', onclick: () => showFlow(tr.item.id, reload)})), fill: (td, f) => {
      text(td.firstChild, f.id);
      attr(td.firstChild, 'data-id', f.id);
      attr(td.firstChild, 'aria-label', 'Details of flow ' + f.id);
    }},
    {head: 'Client', cls: 'addr', fill: (td, f) => two(td, f.client, f.sni)},
    {head: 'Listener', cls: 'wide', fill: (td, f) => two(td, f.listener, f.route)},
    {head: 'Upstream', cls: 'addr', fill: (td, f) => two(td, f.upstream || '–', [f.group, f.member === f.upstream ? '' : f.member].filter(Boolean).join(' / '))},
    {head: 'State', fill: (td, f) => two(td, f.state, f.idle >= 1 ? 'idle ' + span(f.idle) : '')},
    {head: 'Path', cls: 'wide', fill: (td, f) => two(td, f.up.path + ' ↑ ' + f.down.path + ' ↓', '', [f.up.why && 'up: ' + f.up.why, f.down.why && 'down: ' + f.down.why].filter(Boolean).join('\n') || null)},
    {head: 'Bytes', cls: 'num', fill: (td, f) => two(td, bytes(f.up.bytes + f.down.bytes), bytes(f.up.bytes) + ' ↑', exact(f.up.bytes + f.down.bytes))},
    {head: 'Age', cls: 'num', fill: (td, f) => text(td, span(f.age))},
    {head: 'Rate', cls: 'num', fill: (td, f) => text(td, order() === 'rate' ? rate(f.rate || 0) : '–')},
  ]);
  list.heads.forEach((th) => {
    const key = sorts[th.textContent];
    if (!key) return;
    th.replaceChildren(el('button.sort', {type: 'button', onclick: () => {
      form.elements.sort.value = key;
      changed();
    }}, th.textContent));
  });
  document.getElementById('flow-list').append(list.node);
  fromAddress();
  addEventListener('popstate', () => {
    fromAddress();
    again();
  });
  reload = poll(load, (err) => say(document.getElementById('flows-problem'), err));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    changed();
  });
  form.addEventListener('reset', () => setTimeout(changed));
  form.addEventListener('change', changed);
  document.getElementById('more-flows').addEventListener('click', () => {
    limit = Math.min(limit + page, most);
    reload();
  });
  document.getElementById('end-flows').addEventListener('click', () => endFlows(chosen(), described(), reload));
}

// chosen are the conditions that are set, as parameters of the API.
function chosen() {
  const q = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (name !== 'sort' && value.trim()) q.set(name, value.trim());
  return q;
}

const described = () => [...chosen()].map(([name, value]) => `${name.replace('_', ' ')} ${value}`).join(', ');

// fromAddress fills the form by the page's address.
function fromAddress() {
  const q = new URLSearchParams(location.search);
  for (const field of form.elements) if (field.name) field.value = q.get(field.name) ?? (field.name === 'sort' ? 'bytes' : '');
  if (!order()) form.elements.sort.value = 'bytes';
  for (const field of form.querySelectorAll('details [name]')) if (field.value) form.querySelector('details').open = true;
  mark();
}

// changed puts the form's state into the page's address, which can be kept and sent on, and asks again.
function changed() {
  const q = new URLSearchParams(location.search);
  for (const field of form.elements) if (field.name) q.delete(field.name);
  for (const [name, value] of chosen()) q.set(name, value);
  if (order() !== 'bytes') q.set('sort', order());
  const to = location.pathname + (q.size ? '?' + q : '') + location.hash;
  if (to !== location.pathname + location.search + location.hash) history.replaceState(null, '', to);
  again();
}

function again() {
  mark();
  limit = page;
  reload();
}

function mark() {
  list.heads.forEach((th) => {
    const key = sorts[th.textContent];
    if (key) attr(th, 'aria-sort', key === order() ? 'descending' : 'none');
  });
}

// flowsURL is the address of the flows that conditions choose.
export const flowsURL = (conditions) => '?' + new URLSearchParams(conditions) + '#flows';

// filterLink makes a link show the flows that conditions() chooses, without loading the page.
// With a key held down, or the middle button, the browser opens the link as it does.
export function filterLink(link, conditions) {
  link.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0) return;
    event.preventDefault();
    history.pushState(null, '', flowsURL(conditions()));
    fromAddress();
    again();
    document.getElementById('flows').scrollIntoView();
    document.getElementById('flows-title').focus({preventScroll: true});
  });
}

async function load() {
  const q = chosen();
  const filtered = q.size > 0;
  q.set('sort', order());
  q.set('limit', limit);
  const answer = await get('/v1/flows?' + q);
  // A screen reader is told nothing of it: it changes all the time.
  list.update(answer.flows, (f) => f.id);
  const all = answer.flows.length === answer.matched;
  text(document.getElementById('flows-count'), filtered
    ? `${count(answer.matched)} of ${count(answer.total)} open flows match`
    : `${count(answer.total)} open` + (all ? '' : `, the first ${count(answer.flows.length)} by ${order()}`));
  list.node.hidden = answer.flows.length === 0;
  const none = document.getElementById('no-flows');
  none.hidden = answer.flows.length > 0;
  text(none, filtered ? 'No open flow matches this filter.' : 'No flow is open.');
  const more = document.getElementById('more-flows');
  more.hidden = all || limit >= most;
  text(more, `Show ${page} more of ${count(answer.matched)}`);
  const end = document.getElementById('end-flows');
  end.hidden = !filtered || answer.matched === 0;
  text(end, answer.matched === 1 ? 'End this flow…' : `End these ${count(answer.matched)} flows…`);
  return order() === 'rate' ? 1000 : 0;
}

// suggest gives names to the fields of the filter.
export function suggest(names) {
  for (const [name, set] of Object.entries(names)) {
    keyed(document.getElementById('names-' + name), [...set].slice(0, 200), (v) => v, (v) => el('option', {value: v}), () => {});
  }
}
