// The running configuration, what a reload would change, and the end of the daemon.

import {ask, get} from './api.js';
import {confirm, flowsText, tell, undoMember, undoWeights} from './dialogs.js';
import {el, keyed, say, text} from './dom.js';
import {count, moment} from './format.js';
import {follow, reload as reloadLists} from './topology.js';

let shownHash = '';
let diff = null;
let diffProblem = null;
let flows = 0;

const at = (id) => document.getElementById(id);

export function start() {
  at('reload-now').addEventListener('click', () => look(true));
  at('look-again').addEventListener('click', () => look(false));
  at('drain-now').addEventListener('click', drain);
  follow(differences);
}

export function sample(s) {
  flows = s.totals.flows;
  at('drain-now').disabled = s.state === 'draining';
}

// show takes the configuration part of a status.
export async function show(c) {
  text(at('config-source'), c.source || 'command line');
  text(at('config-loaded'), moment(c.loaded));
  text(at('config-hash'), c.hash);
  const failed = c.failed;
  at('reload').hidden = !failed;
  if (failed) {
    text(at('reload-time'), moment(failed.time));
    fillErrors(at('reload-errors'), failed.errors);
  }
  at('from-file').hidden = !c.source;
  if (c.hash === shownHash) return;
  shownHash = c.hash;
  const {text: whole} = await get('/v1/config');
  const lines = whole.replace(/\n$/, '').split('\n');
  at('config-text').replaceChildren(...(whole ? lines : ['# no file: the command line says it all']).map((line) => el('span.code', {}, line + '\n')));
  if (c.source) await look(false);
}

function fillErrors(holder, errors) {
  keyed(holder, errors, (e) => JSON.stringify(e), (e) => el('li', {},
    el('code', {}, [e.source, e.line, e.column].filter(Boolean).join(':')), ' ', e.message, e.allowed ? el('span.quiet', {}, ' – allowed: ' + e.allowed) : null), () => {});
}

const changeText = (c) => `${c.kind} ${c.name} ${c.what}` + (c.fields && c.fields.length ? ': ' + c.fields.join(', ') : '');

// look asks what a reload would change now, and then, if it is wanted, whether to do it.
async function look(reload) {
  const before = at('look-again').disabled;
  at('look-again').disabled = at('reload-now').disabled = true;
  try {
    diff = await get('/v1/config/diff');
    diffProblem = null;
  } catch (err) {
    if (err.status === undefined) throw err;
    [diff, diffProblem] = [null, err];
  } finally {
    at('look-again').disabled = before;
    at('reload-now').disabled = false;
  }
  fill();
  if (reload && diff) askReload();
}

function fill() {
  const word = at('diff');
  const list = at('diff-list');
  word.dataset.is = diffProblem ? 'bad' : diff.changes.length ? 'odd' : 'good';
  text(word, diffProblem ? 'The file cannot be loaded: ' + diffProblem.line() :
    diff.changes.length ? `The file differs from what runs: ${count(diff.changes.length)} ${diff.changes.length === 1 ? 'change' : 'changes'}.` : 'The file says what runs.');
  if (diffProblem) fillErrors(list, diffProblem.errors);
  else fillChanges(list, diff.changes);
}

function fillChanges(holder, changes) {
  keyed(holder, changes, (c) => JSON.stringify(c), (c) => el('li', {}, changeText(c), c.flows ? el('b', {}, ` – ${flowsText(c.flows)} end or drain`) : null, c.restart ? el('span.quiet', {}, ' – needs a restart') : null), () => {});
}

function askReload() {
  const list = el('ul.changes');
  fillChanges(list, diff.changes);
  const nothing = diff.changes.length === 0;
  confirm('Reload the configuration?', [
    el('p', {}, nothing ? 'The file says what runs already.' : `${count(diff.changes.length)} ${diff.changes.length === 1 ? 'change' : 'changes'} in ${at('config-source').textContent}:`), list,
    ...(diff.restart ? [el('p.quiet', {}, 'What needs a restart is left as it is.')] : []),
  ], () => ({
    yes: diff.flows ? `Reload, ${flowsText(diff.flows)} end or drain` : 'Reload', danger: diff.flows > 0,
    effect: diff.flows ? `Ends or drains ${flowsText(diff.flows)}.` : nothing ? '' : 'Ends no flow.', type: diff.flows >= 100 ? String(diff.flows) : '',
  }), async () => {
    const done = await ask('POST', '/v1/reload');
    tell(done.changes.length ? `Reloaded: ${count(done.changes.length)} changes.` : 'Reloaded: nothing has changed.');
    look(false);
  });
}

function drain() {
  confirm('Drain and stop the daemon?', [
    el('p', {}, 'It takes no new flows from now on, and exits after the last one has ended, or when the time of drain in the configuration is over.'),
    el('p.quiet', {}, 'This cannot be undone. This page ends with the daemon.'),
  ], () => ({yes: 'Drain and stop', danger: true, type: 'drain', effect: `Refuses all new clients; ${flowsText(flows)} ${flows === 1 ? 'is' : 'are'} left to end.`}), async () => {
    await ask('POST', '/v1/drain');
    tell('The daemon drains.');
  });
}

let changed = false; // members or weights differ from the file

let asked = 0; // questions how they differ

// differences shows how members and weights that run differ from the file, after changes at run time.
async function differences({groups, listeners}) {
  if (!groups || !listeners) return;
  const any = groups.some((g) => g.changed) || listeners.some((l) => l.routes.some((r) => r.parts?.some((p) => p.weight !== p.file_weight)));
  if (!any && !changed) return;
  changed = any;
  const mine = ++asked;
  const answer = any ? await get('/v1/changes').catch(() => null) : {changes: [], splits: [], yaml: ''};
  if (!answer || mine !== asked) return; // the next listing asks again
  const was = (f) => (f.file && f.running ? `${f.name} ${f.running} instead of ${f.file}` : f.running ? `${f.name} ${f.running}` : '');
  const lines = [
    ...answer.changes.map((d) => ({d, undo: undoMember, name: `${d.group} / ${d.member}`, more: `${d.what}` + (d.fields.some(was) ? ': ' + d.fields.map(was).filter(Boolean).join(', ') : '')})),
    ...answer.splits.map((d) => ({d, undo: undoWeights, name: `${d.listener} / ${d.route}`, more: 'weights: ' + d.parts.map((p) => `${p.name} ${p.running} instead of ${p.file}`).join(', ') + (d.fleet ? ', in the whole fleet' : '')})),
  ];
  keyed(at('member-changes'), lines, (x) => JSON.stringify([x.name, x.d]), (x) => el('li', {}, `${x.name} ${x.more} `,
    el('button.link.full', {type: 'button', 'aria-label': `Undo: ${x.name}`, onclick: () => x.undo(x.d, reloadLists)}, 'Undo…')), () => {});
  text(at('differs'), `${[answer.changes.length && 'Members', answer.splits.length && 'weights'].filter(Boolean).join(' and ').replace(/^w/, 'W')} differ from the file:`);
  text(at('member-yaml'), answer.yaml);
  at('members-differ').hidden = !any;
}

export const problem = (err) => say(at('config-problem'), err);
