// The flows that ended last, and why.

import {get} from './api.js';
import {attr, el, keyed, say, table, text, two} from './dom.js';
import {bytes, count, exact, moment, span} from './format.js';
import {poll} from './poll.js';

const page = matchMedia('(max-width: 720px)').matches ? 8 : 25;
const kept = 512;

let limit = page;
let form;
let list;
let reload;

export function start() {
  form = document.getElementById('ended-filter');
  list = table('Flows that ended last', [
    {head: 'Ended', fill: (td, f) => two(td, moment(f.end), f.id)},
    {head: 'Client', cls: 'addr', fill: (td, f) => two(td, f.client, f.sni)},
    {head: 'Listener', cls: 'wide', fill: (td, f) => two(td, f.listener, f.route)},
    {head: 'Upstream', cls: 'addr', fill: (td, f) => two(td, f.upstream || '–', [f.group, f.member === f.upstream ? '' : f.member].filter(Boolean).join(' / '))},
    {head: 'Cause', cls: 'why', make: (td) => td.append(el('span.state'), el('div.quiet')), fill: (td, f) => {
      text(td.children[0], f.cause + (f.reason && f.reason !== f.cause ? ': ' + f.reason : ''));
      td.children[0].dataset.is = f.problem ? 'bad' : 'plain';
      text(td.children[1], f.error || '');
    }},
    {head: 'Connect', cls: 'num wide', fill: (td, f) => two(td, f.connect ? span(f.connect) : '–', f.attempts > 1 ? f.attempts + ' attempts' : '')},
    {head: 'First byte', cls: 'num wide', fill: (td, f) => text(td, f.first_byte ? span(f.first_byte) : '–')},
    {head: 'Bytes', cls: 'num', fill: (td, f) => two(td, bytes(f.up.bytes + f.down.bytes), bytes(f.up.bytes) + ' ↑', exact(f.up.bytes + f.down.bytes))},
    {head: 'Lasted', cls: 'num', fill: (td, f) => text(td, span(f.duration))},
  ]);
  document.getElementById('ended-list').append(list.node);
  fromAddress();
  addEventListener('popstate', () => {
    fromAddress();
    reload();
  });
  reload = poll(load, (err) => say(document.getElementById('ended-problem'), err));
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('change', changed);
  document.getElementById('more-ended').addEventListener('click', () => {
    limit = kept;
    reload();
  });
}

function fromAddress() {
  const q = new URLSearchParams(location.search);
  form.elements.problems.checked = q.get('ended') === 'problems';
  choose(q.get('cause') || '');
}

function choose(cause) {
  const select = form.elements.cause;
  if (cause && ![...select.options].some((o) => o.value === cause)) select.append(el('option', {value: cause}, cause));
  select.value = cause;
}

function changed() {
  const q = new URLSearchParams(location.search);
  const set = (name, value) => (value ? q.set(name, value) : q.delete(name));
  set('ended', form.elements.problems.checked ? 'problems' : '');
  set('cause', form.elements.cause.value);
  history.replaceState(null, '', location.pathname + (q.size ? '?' + q : '') + location.hash);
  limit = page;
  reload();
}

async function load() {
  const problems = form.elements.problems.checked;
  const answer = await get('/v1/ended?' + new URLSearchParams({problems, limit: kept}));
  const cause = form.elements.cause.value; // as it is now: it may have been chosen meanwhile
  const causes = new Map();
  for (const f of answer.flows) for (const name of new Set([f.cause, f.reason].filter(Boolean))) causes.set(name, (causes.get(name) || 0) + 1);
  if (cause && !causes.has(cause)) causes.set(cause, 0);
  const choices = [['', null], ...[...causes].sort((a, b) => b[1] - a[1])];
  keyed(form.elements.cause, choices, ([name]) => name, ([name]) => el('option', {value: name}), (option, [name, n]) => text(option, name ? `${name} (${count(n)})` : 'any'));
  form.elements.cause.value = cause;
  const flows = answer.flows.filter((f) => !cause || f.cause === cause || f.reason === cause);
  list.update(flows.slice(0, limit), (f) => f.id + f.end);
  list.node.hidden = flows.length === 0;
  text(document.getElementById('ended-count'), answer.kept ? `the last ${count(answer.kept)}${problems ? ' with a problem' : ''}` : '');
  const none = document.getElementById('no-ended');
  none.hidden = flows.length > 0;
  text(none, cause ? 'None of the flows that ended last has this cause.' : problems ? 'No flow with a problem has ended.' : 'No flow has ended yet.');
  const more = document.getElementById('more-ended');
  more.hidden = flows.length <= limit;
  text(more, `Show all ${count(flows.length)}`);
  attr(form, 'data-kept', answer.kept);
}
