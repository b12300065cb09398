// Listeners with their routes, groups with their members.

import {addMember, changeMember} from './dialogs.js';
import {attr, el, keyed, table, text, two} from './dom.js';
import {filterLink, flowsURL, suggest} from './flows.js';
import {bytes, count, exact, moment, span} from './format.js';
import {quantile, since, total} from './histogram.js';
import {broken, destination, follow, groupHealth, reload} from './topology.js';

const shown = 50; // members of a group, before more are asked for
const few = 8; // members that need no search
const window_ = 300000; // ms that latencies are looked back, at most
const step = 10000; // ms between two looks that are kept

// names are what the filter of flows suggests.
const names = {listener: new Set(), route: new Set(), group: new Set(), member: new Set()};

export function start() {
  follow((now, part) => (part === 'listeners' ? listeners(now.listeners) : groups(now.groups)));
}

// flows is a column with the number of open flows, which leads to their list.
const flows = (conditions) => ({
  head: 'Flows', cls: 'num', sort: (a, b) => b.flows - a.flows,
  make: (td, tr) => {
    const link = el('a');
    filterLink(link, () => conditions(tr.item));
    td.append(link, el('span.quiet'));
  },
  fill: (td, x) => {
    text(td.children[0], count(x.flows));
    attr(td.children[0], 'href', flowsURL(conditions(x)));
    attr(td.children[0], 'aria-label', `${count(x.flows)} flows of ${x.name}: show them`);
    text(td.children[1], x.max_flows ? ' / ' + count(x.max_flows) : '');
  },
});

const numbers = [
  {head: 'Begun', cls: 'num', fill: (td, x) => text(td, count(x.begun))},
  {head: 'Refused', cls: 'num', fill: (td, x) => text(td, count(x.refused))},
  {head: 'Failed', cls: 'num', fill: (td, x) => text(td, count(x.failed))},
];

const moved = [
  {head: 'Up', cls: 'num', sort: (a, b) => b.bytes_up - a.bytes_up, fill: (td, x) => sized(td, x.bytes_up)},
  {head: 'Down', cls: 'num', sort: (a, b) => b.bytes_down - a.bytes_down, fill: (td, x) => sized(td, x.bytes_down)},
];

function sized(td, n) {
  text(td, bytes(n));
  attr(td, 'title', exact(n));
}

// pill is a state: its word, and a mark and a colour that say the same.
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

function listeners(list) {
  const holder = document.getElementById('listener-list');
  if (!listenerTable) {
    listenerTable = table('Listeners and their routes', [
      {head: 'Listener', cls: 'fill', fill: (td, x) => two(td, x.name, x.route ? asked(x) : x.address)},
      {head: 'State', make: listenerState.make, fill: (td, x) => listenerState.fill(td, x.state || '')},
      {head: 'To', fill: (td, x) => text(td, x.route ? destination(x) : x.kind)},
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
  suggest(names);
}

// asked is what a route asks of a client.
function asked(r) {
  const part = (name, list) => (list && list.length ? [name + ' ' + list.join(', ')] : []);
  const all = [...part('from', r.from), ...part('SNI', r.sni), ...part('ALPN', r.alpn)];
  return all.length ? all.join('; ') : r.default ? 'clients that no other route takes' : 'every client';
}

let jumped = false;

function groups(list) {
  names.group.clear();
  names.member.clear();
  keyed(document.getElementById('group-list'), list, (g) => g.name, panel, fillPanel);
  document.getElementById('no-groups').hidden = list.length > 0;
  suggest(names);
  if (!jumped) { // the address may name a group that was not there when the page was loaded
    jumped = true;
    if (location.hash.startsWith('#group:')) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }
}

// worst puts members with a problem first, then those that take no flows.
const worst = (a, b) => broken(b) - broken(a) || a.available - b.available;

// panel is one group.
function panel(g) {
  const node = el('article.panel', {id: 'group:' + g.name});
  Object.assign(node, {limit: shown, order: null, looks: []});
  const again = () => fillPanel(node, node.item);
  const columns = [
    {head: 'Member', cls: 'fill', sort: (a, b) => a.name.localeCompare(b.name, 'en', {numeric: true}), fill: (td, m) => two(td, m.name, [m.name === m.address ? '' : m.address, m.backup && 'backup', m.discovered && 'discovered'].filter(Boolean).join(' · '))},
    {head: 'State', cls: 'why', sort: worst, make: memberState.make, fill: (td, m) => memberState.fill(td, m.state, reason(m))},
    {head: 'Weight', cls: 'num', fill: (td, m) => text(td, String(m.weight))},
    flows((m) => ({group: node.item.name, member: m.name})),
    {head: 'Connects', cls: 'num', sort: (a, b) => slow(b) - slow(a), fill: (td, m) => two(td, count(m.connects), m.connects ? 'in ' + span(m.connect_seconds / m.connects) : '', 'how many, and how long one took on average')},
    {head: 'First byte', cls: 'num', sort: (a, b) => answered(node, b).mean - answered(node, a).mean, fill: (td, m) => firstByte(td, answered(node, m))},
    {head: 'Failures', cls: 'num', sort: (a, b) => b.failures - a.failures, fill: (td, m) => text(td, count(m.failures))},
    {head: 'Check', cls: 'check', fill: (td, m) => check(td, m.check, m.agent)},
    ...moved,
    {head: '', cls: 'act full', make: (td, tr) => td.append(el('button', {type: 'button', onclick: () => changeMember(node.item, tr.item, reload)}, 'Change…')),
      fill: (td, m) => attr(td.firstChild, 'aria-label', 'Change ' + m.name)},
  ];
  node.table = table('Members', columns);
  node.table.heads.forEach((th, i) => {
    const {head, sort} = columns[i];
    if (!sort) return;
    th.replaceChildren(el('button.sort', {type: 'button', onclick: () => {
      node.order = node.order === sort ? null : sort;
      node.table.heads.forEach((other, j) => attr(other, 'aria-sort', columns[j].sort ? (columns[j].sort === node.order ? 'other' : 'none') : null));
      again();
    }}, head));
  });
  node.find = el('input', {type: 'search', 'aria-label': 'Search the members of ' + g.name, placeholder: 'Search members', spellcheck: false, autocomplete: 'off', oninput: again});
  node.only = el('input', {type: 'checkbox', onchange: again});
  node.onlyLabel = el('span', {}, 'Only problems');
  node.tools = el('div.tools', {role: 'search', 'aria-label': 'Members of ' + g.name}, node.find, el('label.check-box', {}, node.only, node.onlyLabel), el('span.quiet', {role: 'status'}));
  node.more = el('button.more', {type: 'button', onclick: () => {
    node.limit += 4 * shown;
    again();
  }});
  node.append(
    el('header', {}, el('h3'), el('span.badge'), el('p.quiet'), el('button.full', {type: 'button', 'aria-label': 'Add a member to ' + g.name, onclick: () => addMember(node.item, reload)}, 'Add a member…')),
    el('p.empty', {hidden: true}),
    node.tools,
    el('div.scroll', {role: 'region', tabindex: 0}, node.table.node), node.more);
  return node;
}

const slow = (m) => (m.connects ? m.connect_seconds / m.connects : 0);

function fillPanel(node, g) {
  const [head, empty, tools, scroll] = node.children;
  names.group.add(g.name);
  for (const m of g.members) names.member.add(m.name);
  const [is, word] = groupHealth(g);
  text(head.children[0], g.name);
  text(head.children[1], word);
  head.children[1].dataset.is = is;
  look(node, g);
  const q = g.queue;
  const queue = q.size || q.queued_total ? `queue ${count(q.flows)} of ${count(q.size)}, ${count(q.queued_total)} entered, ${count(q.timed_out)} timed out, ${count(q.full)} found it full` : 'no queue';
  text(head.children[2], [g.balance, `${count(g.flows)} flows`, `${count(g.retries)} retries`, `${count(g.refused)} refused`, queue, ...latency(node, g), ...(g.changed ? [`${count(g.changed)} differ from the file`] : [])].join(' · '));
  const long = g.members.length > few;
  tools.hidden = !long;
  const problems = g.members.filter(broken).length;
  text(node.onlyLabel, `Only problems (${count(problems)})`);
  const asked_ = node.find.value.trim().toLowerCase();
  let members = g.members;
  if (long && node.only.checked) members = members.filter(broken);
  if (long && asked_) members = members.filter((m) => [m.name, m.address, m.state, m.why || ''].some((s) => s.toLowerCase().includes(asked_)));
  const found = members.length;
  // In a long list those with a problem come first: they are what one looks for.
  if (node.order || g.members.length > shown) members = [...members].sort(node.order || worst);
  text(tools.lastChild, asked_ || node.only.checked ? `${count(found)} of ${count(g.members.length)} members` : '');
  node.table.update(members.slice(0, node.limit), keyOf);
  empty.hidden = found > 0;
  text(empty, g.members.length ? (node.only.checked && !asked_ ? 'No member has a problem.' : 'No member matches.') : g.destination ? `Flows go to ${g.destination}.` : 'This group has no members.');
  scroll.hidden = found === 0;
  attr(scroll, 'aria-label', 'Table of members of ' + g.name);
  node.more.hidden = found <= node.limit;
  text(node.more, `Show ${count(Math.min(4 * shown, found - node.limit))} more of ${count(found)} members`);
}

// look keeps how long connects and first bytes of a group take, and of its members.
function look(node, g) {
  const t = performance.now();
  const looks = node.looks;
  if (!looks.length || t - looks[looks.length - 1].t >= step) looks.push({t, of: g.latency, members: new Map(g.members.map((m) => [keyOf(m), m]))});
  while (looks.length > 1 && t - looks[1].t > window_) looks.shift();
}

const keyOf = (m) => m.name + '\n' + m.address;

// answered is how often a member has sent a first byte, and after how long on average, in the last minutes that
// this page has seen; if that is nothing, or another process counts, since the daemon's start.
function answered(node, m) {
  const before = node.looks[0]?.members.get(keyOf(m));
  const recent = before && m.answers > before.answers && m.first_byte_seconds >= before.first_byte_seconds;
  const n = recent ? m.answers - before.answers : m.answers;
  return {n, mean: n ? (recent ? m.first_byte_seconds - before.first_byte_seconds : m.first_byte_seconds) / n : 0};
}

function firstByte(td, {n, mean}) {
  two(td, n ? span(mean) : '–', n ? 'of ' + count(n) : '', 'the mean time from the connect until the first byte, and of how many flows that have ended');
}

// latency says how long connects and first bytes take, in the last minutes that this page has seen,
// or, of a page that has just begun, since the daemon's start.
function latency(node, g) {
  const of = (name) => {
    const recent = since(g.latency[name], node.looks[0].of[name]);
    return total(recent) > 0 ? recent : g.latency[name];
  };
  return [['connect', 'connect'], ['first byte', 'first_byte']].flatMap(([what, name]) => {
    const h = of(name);
    return total(h) ? [`${what} p50 ${span(quantile(h, 0.5))}, p99 ${span(quantile(h, 0.99))}`] : [];
  });
}

function reason(m) {
  const until = m.until ? 'until ' + moment(m.until) : '';
  return [m.why, until || (m.since ? 'since ' + moment(m.since) : '')].filter(Boolean).join(' · ');
}

function check(td, c, agent) {
  const said = !agent ? '' : 'agent: ' + [agent.error, agent.says].filter(Boolean).join('; ');
  if (!c) return two(td, said || '–', agent?.time ? moment(agent.time) : '');
  two(td, c.ok ? 'ok in ' + span(c.took) : c.error || 'failed', [(c.streak > 1 ? c.streak + ' in a row, ' : '') + moment(c.time), said].filter(Boolean).join(' · '));
}
