// What became of a worker and its flows, in words.

import {count, span} from './format.js';

export const flows = (n) => `${count(n)} ${n === 1 ? 'flow' : 'flows'}`;

// unplanned reports whether a worker was started because the one before had died.
export const unplanned = (w) => w.reason === 'crash' || w.reason === 'rollback';

// startWhy tells why a worker was started.
export function startWhy(w) {
  switch (w.reason) {
    case 'crash': return 'after ' + w.cause;
    case 'rollback': return `to undo an upgrade (${w.cause})`;
    case 'upgrade': return 'for the upgrade to ' + w.version;
  }
  return 'for a change of the configuration';
}

// outcome tells what became of the flows when a worker was started.
export function outcome(w) {
  const lost = w.lost.reduce((n, l) => n + l.count, 0);
  const why = w.lost.filter((l) => l.count > 0).map((l) => `${count(l.count)} ${l.reason}`).join(', ');
  return `${flows(w.restored)} continued, ${count(lost)} lost${why ? ` (${why})` : ''}, ${span(w.pause)} without traffic`;
}
