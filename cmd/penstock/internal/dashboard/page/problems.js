// What is broken, the worst first. The overview begins with it.

import {attr, el, keyed, text} from './dom.js';
import {count, moment, span} from './format.js';
import * as lists from './lists.js';
import {broken, follow, now} from './topology.js';
import {title} from './title.js';
import {outcome, unplanned} from './workers.js';

const minute = 60; // s that refusals and failures are looked back
const named = 3; // members that a line names

let samples = []; // of the last minute
let config = null;
let ofLists = [];

export function start() {
  follow(show);
}

// sample takes one of the stream.
export function sample(s) {
  if (samples.length && s.uptime < samples[samples.length - 1].uptime) samples = []; // another process
  samples.push(s);
  while (Date.parse(s.time) - Date.parse(samples[0].time) > minute * 1000) samples.shift();
  show();
}

// configuration takes the configuration part of a status.
export function configuration(c) {
  config = c;
  show();
}

// list takes the lists of networks.
export function list(all) {
  ofLists = lists.broken(all);
  show();
}

// gap forgets the samples: after a gap in the stream they say nothing about the present.
export function gap() {
  samples = [];
}

function show() {
  const list = [...ofReload(), ...ofListeners(), ...ofGroups(), ...ofLists, ...ofFlows(), ...ofResources()];
  list.sort((a, b) => (a.level === b.level ? 0 : a.level === 'bad' ? -1 : 1));
  const holder = document.getElementById('problem-list');
  keyed(holder, list, (p) => p.key, () => el('li', {}, el('span.mark', {'aria-hidden': 'true'}), el('div', {}, el('a', {onclick: visit}), el('p.quiet'))), (li, p) => {
    attr(li, 'data-is', p.level);
    text(li.firstChild, p.level === 'bad' ? '✕' : '▲');
    const [link, more] = li.lastChild.children;
    text(link, p.what);
    attr(link, 'href', p.href);
    text(more, p.more || '');
    more.hidden = !p.more;
  });
  const looking = !samples.length || !now.groups || !now.listeners;
  const fine = document.getElementById('no-problems');
  fine.hidden = list.length > 0;
  text(fine, looking ? 'Looking …' : 'Nothing is broken.');
  fine.dataset.is = looking ? '' : 'good';
  const worst = list.filter((p) => p.level === 'bad').length;
  text(document.getElementById('problem-count'), list.length ? `${count(list.length)} ${list.length === 1 ? 'problem' : 'problems'}` : '');
  title({problems: list.length, bad: worst});
}

// visit goes where a link leads without loading the page anew, which would cost its charts.
function visit(event) {
  const to = new URL(event.currentTarget.href);
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || !to.search) return;
  event.preventDefault();
  history.pushState(null, '', to);
  dispatchEvent(new PopStateEvent('popstate'));
  document.querySelector(to.hash).scrollIntoView();
}

function ofReload() {
  const f = config && config.failed;
  if (!f) return [];
  const e = f.errors[0];
  const more = e ? [[e.source, e.line, e.column].filter(Boolean).join(':'), e.message].filter(Boolean).join(' ') : '';
  return [{key: 'reload', level: 'bad', href: '#configuration', what: `The last reload failed at ${moment(f.time)}, and changed nothing`,
    more: more + (f.errors.length > 1 ? `; and ${f.errors.length - 1} more` : '')}];
}

function ofListeners() {
  return (now.listeners || []).filter((l) => l.state === 'resting').map((l) => ({
    key: 'l ' + l.name, level: 'bad', href: '#listeners', what: `Listener ${l.name} accepts no clients`, more: 'No descriptor is left: see Resources.'}));
}

function names(members) {
  const list = members.slice(0, named).map((m) => m.name + (m.why ? ` (${m.why})` : ''));
  return list.join(', ') + (members.length > named ? ` and ${count(members.length - named)} more` : '');
}

function ofGroups() {
  const list = [];
  for (const g of now.groups || []) {
    const href = '#group:' + encodeURIComponent(g.name);
    if (g.destination) continue; // it has no members that could be down
    const down = g.members.filter(broken);
    const some = g.members.some((m) => m.available);
    const key = 'g ' + g.name;
    if (!g.members.length) list.push({key, level: 'bad', href, what: `Group ${g.name} has no members`, more: 'Its flows are refused.'});
    else if (!some) list.push({key, level: 'bad', href, what: `Group ${g.name} takes no flows: none of its ${count(g.members.length)} members is available`, more: names(g.members.filter((m) => !m.available))});
    else if (g.panic) list.push({key, level: 'bad', href, what: `Group ${g.name} is in panic mode: so few members are up that all of them take flows`, more: names(down)});
    else if (down.length) list.push({key, level: 2 * down.length >= g.members.length ? 'bad' : 'odd', href, what: `${count(down.length)} of ${count(g.members.length)} members of ${g.name} ${down.length === 1 ? 'is' : 'are'} down`, more: names(down)});
    for (const l of g.lookups || []) if (l.error) list.push({key: `n ${g.name} ${l.name}`, level: 'odd', href, what: `The look-up of ${l.name} fails`, more: l.error + '; its members are those of the last good answer.'});
    if (g.queue.flows) list.push({key: 'q ' + g.name, level: g.queue.flows >= g.queue.size ? 'bad' : 'odd', href, what: `${count(g.queue.flows)} of ${count(g.queue.size)} places in the queue of ${g.name} are taken`, more: 'Its members are at their caps, or down.'});
  }
  return list;
}

// expected are refusals that an operator has asked for.
const expected = ['denied', 'removed', 'killed', 'client-ended', 'check-failed', 'unhealthy', 'ejected'];

function ofFlows() {
  if (samples.length < 2) return [];
  const [first, last] = [samples[0], samples[samples.length - 1]];
  const passed = 'in the last ' + span(Math.max(1, Math.round((Date.parse(last.time) - Date.parse(first.time)) / 1000)));
  const before = new Map(first.refusals.map((r) => [r.listener + '\n' + r.reason, r.count]));
  const list = [];
  for (const r of last.refusals) {
    const n = r.count - (before.get(r.listener + '\n' + r.reason) || 0);
    if (n > 0) list.push({key: `r ${r.listener} ${r.reason}`, level: expected.includes(r.reason) ? 'odd' : 'bad', n, href: endedURL(r),
      what: `${count(n)} ${n === 1 ? 'flow' : 'flows'} of ${r.listener} refused or ended ${passed}: ${r.reason}`});
  }
  list.sort((a, b) => b.n - a.n);
  const failed = last.totals.failed - first.totals.failed;
  if (failed > 0) list.push({key: 'failed', level: 'odd', href: '?ended=problems#ended', what: `${count(failed)} ${failed === 1 ? 'flow' : 'flows'} failed ${passed}`, more: 'Ended by an error or a limit, not by both sides.'});
  return list;
}

const endedURL = (r) => '?' + new URLSearchParams({ended: 'problems', cause: r.reason}) + '#ended';

// recent is how long the death of a worker counts as a problem: somebody has to look why it died.
const recent = 10 * 60; // s

function ofKeeper(s) {
  const k = s.keeper;
  if (!k) return [];
  if (!k.up) return [{key: 'keeper', level: 'bad', href: '#keeper', what: 'The keeper is gone', more: 'Flows would end with the worker. Start the service again when that suits.'}];
  const w = k.last;
  if (!w || !unplanned(w) || Date.parse(s.time) - Date.parse(w.time) > recent * 1000) return [];
  return [{key: 'worker', level: 'odd', href: '#keeper', what: w.reason === 'crash' ? `The worker died at ${moment(w.time)} (${w.cause}), and another one goes on` : `The upgrade was undone at ${moment(w.time)}: the new worker ended with ${w.cause}`, more: outcome(w) + '.'}];
}

function ofResources() {
  if (!samples.length) return [];
  const last = samples[samples.length - 1].resources;
  const first = samples[0].resources;
  const list = ofKeeper(samples[samples.length - 1]);
  if (last.fds && last.fds > 0.9 * last.max_fds) list.push({key: 'fds', level: 'bad', href: '#resources', what: `${count(last.fds)} of ${count(last.max_fds)} descriptors are open`, more: 'At the bound no client is accepted.'});
  const overload = samples[samples.length - 1].overload || {actions: []};
  for (const a of overload.actions) {
    if (a.active && a.name !== 'shrink') list.push({key: `overload-${a.name}`, level: 'bad', href: '#resources', what: `The ${a.resource} is short: ${a.name}`, more: `${count(a.count)} so far. See Overload in docs/running.md.`});
  }
  const grown = (name, what, more) => {
    const n = last[name] - first[name];
    if (n > 0) list.push({key: name, level: 'odd', href: '#resources', what: `${count(n)} ${what} in the last minute`, more});
  };
  grown('datagrams_lost', 'datagrams were lost in the kernel', 'It dropped them before the relay could read them.');
  const before = new Map((first.datagrams_dropped || []).map((d) => [d.reason, d.count]));
  for (const d of last.datagrams_dropped || []) {
    const n = d.count - (before.get(d.reason) || 0);
    if (n > 0) list.push({key: `drop ${d.reason}`, level: 'odd', href: '#resources', what: `${count(n)} ${n === 1 ? 'datagram was' : 'datagrams were'} dropped in the last minute: ${d.reason}`, more: 'The relay read them, and could not deliver them.'});
  }
  grown('log_lines_dropped', 'lines of the log were dropped', 'The disk or the reader is too slow.');
  grown('pipes_refused', 'flows found no pipe, and were copied', `The bound is ${count(last.pipes_max)} pipes.`);
  return list;
}
