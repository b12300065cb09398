// One flow: its route, its data path, and what the kernel knows of both legs.

import {get} from './api.js';
import {dialog, killFlow, tell} from './dialogs.js';
import {el, keyed, say, text} from './dom.js';
import {bytes, count, exact, moment, rate, span} from './format.js';

const every = 1000;

// showFlow opens the detail of a flow, and follows it until the flow or the dialog
// ends; killed is called when it was ended here.
export async function showFlow(id, killed) {
  let first;
  try {
    first = await get('/v1/flows/' + id);
  } catch (err) {
    if (err.status === undefined) throw err;
    tell(err.status === 404 ? `Flow ${id} has ended.` : err.line());
    return;
  }
  const problem = el('p.problem', {role: 'alert', hidden: true});
  const route = el('ol.route');
  const facts = el('dl.facts');
  const paths = el('div.pair');
  const legs = el('div.scroll', {role: 'region', tabindex: 0, 'aria-label': 'TCP of both legs'});
  const kill = el('button.danger.full', {type: 'button', onclick: () => killFlow(first, () => {
    ended();
    killed();
  })}, 'End this flow…');
  const node = dialog('Flow ' + id, 'detail', problem, route, paths, el('h3', {}, 'TCP of both legs'), legs, el('h3', {}, 'Facts'), facts, el('footer', {}, kill));
  const show = (f) => {
    fillSteps(route, f);
    keyed(paths, [['up', 'Client to upstream', f.up], ['down', 'Upstream to client', f.down]], ([key]) => key, direction, fillDirection);
    fillLegs(legs, f);
    fillFacts(facts, f);
  };
  let timer = 0;
  const ended = () => {
    clearTimeout(timer);
    node.classList.add('ended');
    say(problem, {line: () => 'The flow has ended. This is the last that was known of it.'});
    kill.hidden = true;
  };
  const follow = async () => {
    if (!node.open) return;
    try {
      show(await get('/v1/flows/' + id));
      say(problem, null);
      timer = setTimeout(follow, every);
    } catch (err) {
      if (err.status === 404) return ended();
      if (err.status === undefined) throw err;
      say(problem, err);
      timer = setTimeout(follow, 3 * every);
    }
  };
  node.addEventListener('close', () => clearTimeout(timer));
  show(first);
  timer = setTimeout(follow, every);
}

function fillSteps(route, f) {
  const steps = [
    ['client', f.client, f.sni && 'SNI ' + f.sni],
    ['listener', f.listener, f.local],
    ['route', f.route || '–', f.group && 'to ' + f.group],
    ['upstream', f.upstream || '–', f.member],
  ];
  keyed(route, steps, ([name]) => name, () => el('li', {}, el('div.quiet'), el('div.what'), el('div.quiet')), (li, step) => step.forEach((s, i) => text(li.children[i], s || '')));
}

const direction = () => el('section', {}, el('h3'), el('p.path'), el('p.quiet'), el('dl.facts'));

function fillDirection(node, [, name, t]) {
  text(node.children[0], name);
  text(node.children[1], t.path === 'none' ? 'nothing yet' : t.path);
  text(node.children[2], t.why ? 'Not faster: ' + t.why : t.path === 'none' ? '' : 'This is the fastest path.');
  const datagrams = t.datagrams != null || t.datagrams_dropped != null;
  pairs(node.children[3], [
    ['Bytes', bytes(t.bytes), exact(t.bytes)],
    ['Spliced', t.bytes ? Math.floor(100 * (t.spliced || 0) / t.bytes) + '\u00a0%' : '–', exact(t.spliced || 0)],
    ['Held', bytes(t.held || 0), exact(t.held || 0)],
    ...(datagrams ? [['Datagrams', count(t.datagrams || 0)], ['Dropped', count(t.datagrams_dropped || 0)]] : []),
  ]);
}

function pairs(dl, list) {
  keyed(dl, list, ([name]) => name, () => el('div', {}, el('dt'), el('dd')), (div, [name, value, title]) => {
    text(div.children[0], name);
    text(div.children[1], value);
    if (title) div.children[1].title = title;
  });
}

// legRows are the lines of the table: what tcp_info has, in the order in which one asks.
const legRows = [
  ['State', (t) => t.state],
  ['Round trip', (t) => `${span(t.rtt)} ± ${span(t.rttvar)}`],
  ['Least round trip', (t) => span(t.min_rtt)],
  ['Retransmitted', (t) => count(t.retransmits) + ' segments'],
  ['Segments lost now', (t) => count(t.lost) + ' segments'],
  ['Congestion window', (t) => count(t.cwnd) + ' segments'],
  ['Segment size', (t) => count(t.mss) + ' B'],
  ['Unacknowledged', (t) => count(t.unacked) + ' segments'],
  ['Unsent', (t) => bytes(t.unsent)],
  ['Pacing', (t) => (t.pacing_rate >= 1e15 ? 'none' : rate(t.pacing_rate))],
  ['Delivery', (t) => rate(t.delivery_rate)],
  ['Receive space', (t) => bytes(t.recv_space)],
  ['Congestion control', (t) => t.congestion || '–'],
];

function fillLegs(holder, f) {
  const both = [f.client_tcp, f.upstream_tcp];
  if (!both.some(Boolean)) {
    if (!holder.querySelector('p')) holder.replaceChildren(el('p.empty', {}, 'No leg of this flow is TCP.'));
    return;
  }
  let body = holder.querySelector('tbody');
  if (!body) {
    body = el('tbody');
    holder.replaceChildren(el('table.plain', {}, el('caption.hidden', {}, 'TCP of both legs'),
      el('thead', {}, el('tr', {}, el('td'), el('th.num', {scope: 'col'}, 'Client'), el('th.num', {scope: 'col'}, 'Upstream'))), body));
  }
  keyed(body, legRows, ([name]) => name, () => el('tr', {}, el('th', {scope: 'row'}), el('td.num'), el('td.num')), (tr, [name, of]) => {
    text(tr.children[0], name);
    both.forEach((t, i) => text(tr.children[i + 1], t ? of(t) : '–'));
  });
}

function fillFacts(dl, f) {
  const limit = (n, show) => (n ? show(n) : 'none');
  pairs(dl, [
    ['Kind', f.kind], ['State', f.state],
    ['Began', moment(f.start)], ['Age', span(f.age)], ['Idle', span(f.idle)],
    ['Connected in', f.connect ? span(f.connect) + (f.attempts > 1 ? `, ${f.attempts} attempts` : '') : 'not yet'],
    ['First byte after', f.first_byte ? span(f.first_byte) : 'not yet'],
    ...(f.queued ? [['Queued', span(f.queued)]] : []),
    ['Id', f.id], ['Loop', String(f.loop)], ['Socket’s peer', f.peer],
    ...(f.alpn ? [['ALPN', f.alpn.join(', ')]] : []),
    ['Idle limit', limit(f.idle_limit, span)], ['Life limit', limit(f.life_limit, span)], ['Rate limit', limit(f.rate_limit, rate)],
  ]);
}
