// Listeners with their routes, groups with their members.

import {get} from './api.js';
import {changeMember} from './dialogs.js';
import {attr, el, keyed, say, table, text, two} from './dom.js';
import {bytes, count, exact, moment, span} from './format.js';
import {filterBy} from './flows.js';
import {poll} from './poll.js';

const shown = 50; // members of a group, before more are asked for

// names are what the filter of flows suggests.
const names = {listener: new Set(), route: new Set(), group: new Set(), member: new Set()};

export function start() {
  const problem = (id) => (err) => say(document.getElementById(id), err);
  poll(listeners, problem('listeners-problem'));
  reload = poll(groups, problem('groups-problem'));
}

let reload;

// flows is a column with the number of open flows, which leads to their list.
const flows = (conditions) => ({
  head: 'Flows', cls: 'num',
  make: (td, tr) => td.append(el('button.link', {type: 'button', onclick: () => filterBy(conditions(tr.item))}), el('span.quiet')),
  fill: (td, x) => {
    text(td.children[0], count(x.flows));
    attr(td.children[0], 'aria-label', `Show ${x.flows} flows of ${x.name}`);
    text(td.children[1], x.max_flows ? ' / ' + count(x.max_flows) : '');
  },
});

const numbers = [
  {head: 'Begun', cls: 'num', fill: (td, x) => text(td, count(x.begun))},
  {head: 'Refused', cls: 'num', fill: (td, x) => text(td, count(x.refused))},
  {head: 'Failed', cls: 'num', fill: (td, x) => text(td, count(x.failed))},
];

const moved = [
  {head: 'Up', cls: 'num', fill: (td, x) => sized(td, x.bytes_up)},
  {head: 'Down', cls: 'num', fill: (td, x) => sized(td, x.bytes_down)},
];

function sized(td, n) {
  text(td, bytes(n));
  attr(td, 'title', exact(n));
}

// pill is a state: its word, and a colour that says the same.
const pill = (good, bad) => ({
  make: (td) => td.append(el('span.state'), el('div.quiet')),
  fill: (td, state, more) => {
    text(td.children[0], state);
    td.children[0].dataset.is = good.includes(state) ? 'good' : bad.includes(state) ? 'bad' : 'odd';
    text(td.children[1], more || '');
  },
});

const listenerState = pill(['open'], ['resting']);
const memberState = pill(['up'], ['down', 'ejected']);

let listenerTable;

async function listeners() {
  const list = (await get('/v1/listeners')).listeners;
  const holder = document.getElementById('listener-list');
  if (!listenerTable) {
    listenerTable = table('Listeners and their routes', [
      {head: 'Listener', cls: 'fill', fill: (td, x) => two(td, x.name, x.route ? asked(x) : x.address)},
      {head: 'State', make: listenerState.make, fill: (td, x) => listenerState.fill(td, x.state || '')},
      {head: 'To', fill: (td, x) => text(td, x.group || x.kind)},
      flows((x) => (x.route ? {listener: x.listener, route: x.name} : {listener: x.name})), ...numbers, ...moved,
    ]);
    holder.append(listenerTable.node);
  }
  const rows = [];
  names.listener.clear();
  names.route.clear();
  for (const l of list) {
    names.listener.add(l.name);
    rows.push({...l, key: JSON.stringify([l.name])});
    for (const r of l.routes) {
      names.route.add(r.name);
      rows.push({...r, route: true, listener: l.name, key: JSON.stringify([l.name, r.name])});
    }
  }
  listenerTable.update(rows, (x) => x.key);
  for (const tr of listenerTable.body.children) tr.classList.toggle('sub', Boolean(tr.item.route));
  listenerTable.node.hidden = list.length === 0;
  document.getElementById('no-listeners').hidden = list.length > 0;
  suggest();
}

// asked is what a route asks of a client.
function asked(r) {
  const part = (name, list) => (list && list.length ? [name + ' ' + list.join(', ')] : []);
  const all = [...part('from', r.from), ...part('SNI', r.sni), ...part('ALPN', r.alpn)];
  return all.length ? all.join('; ') : r.default ? 'whom no other route takes' : 'every client';
}

async function groups() {
  const list = (await get('/v1/groups')).groups;
  names.group.clear();
  names.member.clear();
  keyed(document.getElementById('group-list'), list, (g) => g.name, panel, fillPanel);
  document.getElementById('no-groups').hidden = list.length > 0;
  suggest();
}

// panel is one group.
function panel() {
  const node = el('article.panel');
  node.all = false;
  node.table = table('Members', [
    {head: 'Member', cls: 'fill', fill: (td, m) => two(td, m.name, [m.name === m.address ? '' : m.address, m.backup && 'backup', m.discovered && 'discovered'].filter(Boolean).join(' · '))},
    {head: 'State', cls: 'why', make: memberState.make, fill: (td, m) => memberState.fill(td, m.state, reason(m))},
    {head: 'Weight', cls: 'num', fill: (td, m) => text(td, String(m.weight))},
    flows((m) => ({group: node.item.name, member: m.name})),
    {head: 'Connects', cls: 'num', fill: (td, m) => two(td, count(m.connects), m.connects ? 'in ' + span(m.connect_seconds / m.connects) : '', 'how many, and how long one took on average')},
    {head: 'Failures', cls: 'num', fill: (td, m) => text(td, count(m.failures))},
    {head: 'Check', cls: 'check', fill: (td, m) => check(td, m.check)},
    ...moved,
    {head: '', cls: 'act full', make: (td, tr) => td.append(el('button', {type: 'button', onclick: () => changeMember(node.item, tr.item, reload)}, 'Change…')),
      fill: (td, m) => attr(td.firstChild, 'aria-label', 'Change ' + m.name)},
  ]);
  node.more = el('button.more', {type: 'button', onclick: () => {
    node.all = true;
    fillPanel(node, node.item);
  }});
  node.append(
    el('header', {}, el('h3'), el('span.badge'), el('p.quiet')),
    el('p.empty', {hidden: true}, 'This group has no members.'),
    el('div.scroll', {role: 'region', tabindex: 0}, node.table.node), node.more);
  return node;
}

function fillPanel(node, g) {
  const [head, empty, scroll] = node.children;
  const up = g.members.filter((m) => m.available).length;
  names.group.add(g.name);
  for (const m of g.members) names.member.add(m.name);
  text(head.children[0], g.name);
  text(head.children[1], `${up} of ${g.members.length} take flows`);
  head.children[1].dataset.is = up === g.members.length ? 'good' : up ? 'odd' : 'bad';
  const q = g.queue;
  const queue = q.size || q.queued_total ? `queue ${count(q.flows)} of ${count(q.size)}, ${count(q.queued_total)} queued since the start, ${count(q.timed_out)} timed out, ${count(q.full)} refused while it was full` : 'no queue';
  text(head.children[2], [g.balance, count(g.flows) + ' flows', count(g.retries) + ' retries', count(g.refused) + ' refused', queue].join(' · '));
  // In a long list those that take no flows come first: they are what one looks for.
  const long = g.members.length > shown;
  const members = long ? [...g.members].sort((a, b) => a.available - b.available) : g.members;
  node.table.update(node.all ? members : members.slice(0, shown), (m) => m.name + '\n' + m.address);
  empty.hidden = g.members.length > 0;
  scroll.hidden = g.members.length === 0;
  attr(scroll, 'aria-label', 'Members of ' + g.name);
  node.more.hidden = node.all || !long;
  text(node.more, `Show all ${count(g.members.length)} members`);
}

function reason(m) {
  const until = m.until ? 'until ' + moment(m.until) : '';
  return [m.why, until || (m.since ? 'since ' + moment(m.since) : '')].filter(Boolean).join(' · ');
}

function check(td, c) {
  if (!c) return two(td, '–', '');
  two(td, c.ok ? 'ok in ' + span(c.took) : c.error || 'failed', (c.streak > 1 ? c.streak + ' in a row, ' : '') + moment(c.time));
}

// suggest gives the names to the filter's fields.
function suggest() {
  for (const [name, set] of Object.entries(names)) {
    keyed(document.getElementById('names-' + name), [...set].slice(0, 200), (v) => v, (v) => el('option', {value: v}), () => {});
  }
}
