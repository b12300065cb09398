// Lines over the last five minutes. The daemon keeps no history: it is what this
// page has seen. uPlot is a script of its own in index.html, as its authors make it small.

import {el, keyed, text} from './dom.js';
import {minute, second} from './format.js';

const window_ = 300; // s
const line = 30; // s, of the table

let charts = 0;

// colour is what CSS makes of a colour, such as var(--up).
function colour(css) {
  const probe = el('i');
  probe.style.color = css;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

// Chart is one pair of axes with some lines: {name, colour}. Its legend shows the
// youngest values, or those under the pointer.
export class Chart {
  constructor(holder, title, lines, show, least, steps) {
    this.lines = lines;
    this.show = show;
    this.least = least; // the scale's top is never below
    this.steps = steps; // between the numbers of the scale; undefined: decimal ones
    this.data = [[], ...lines.map(() => [])];
    this.values = lines.map(() => el('b', {}, '–'));
    const legend = el('ul.legend', {}, ...lines.map((l, i) => el('li', {}, el('i.swatch.' + l.colour, {'aria-hidden': 'true'}), l.name + ' ', this.values[i])));
    this.canvas = el('div.plot', {'aria-hidden': 'true'});
    this.summary = el('p.hidden', {id: 'chart-' + ++charts});
    this.body = el('tbody');
    // The same as numbers, for people who cannot see the lines or want to copy them.
    this.table = el('details', {ontoggle: () => this.tabulate()}, el('summary', {}, 'As a table', el('span.hidden', {}, ': ' + title)),
      el('table.plain', {}, el('caption.hidden', {}, title + ', a line for each half minute'),
        el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'Time'), ...lines.map((l) => el('th.num', {scope: 'col'}, l.name)))), this.body));
    holder.append(el('figure.panel', {'aria-describedby': this.summary.id}, el('figcaption', {}, el('h3', {}, title), legend), this.canvas, this.summary, this.table));
    this.draw();
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(this.canvas);
  }

  size() {
    return {width: Math.max(this.canvas.clientWidth, 100), height: this.canvas.clientHeight || 150};
  }

  // draw makes the plot anew: colours are the look's.
  draw() {
    if (this.plot) this.plot.destroy();
    const font = '11px ' + getComputedStyle(document.body).fontFamily;
    const axis = {stroke: colour('var(--quiet)'), font, grid: {stroke: colour('var(--line)'), width: 1}, ticks: {show: false}};
    const ceiling = (u, lo, hi) => [0, Math.max((hi || 0) * 1.15, this.least)];
    this.plot = new window.uPlot({
      ...this.size(),
      padding: [8, 14, 0, 0],
      legend: {show: false},
      cursor: {y: false, drag: {setScale: false, x: false, y: false}, points: {size: 6}, sync: {key: 'time'}},
      hooks: {setCursor: [() => this.label()]},
      scales: {x: {time: true, range: (u, lo, hi) => [-window_, 0].map((d) => d + (hi || Date.now() / 1000))}, y: {range: ceiling}},
      axes: [
        {...axis, space: 44, incrs: [60, 120, 300], size: 26, values: (u, ts) => ts.map(minute)},
        {...axis, space: 34, size: 74, gap: 6, incrs: this.steps, values: (u, vs) => vs.map(this.show)},
      ],
      series: [{}, ...this.lines.map((l) => ({
        stroke: colour(`var(--${l.colour})`), width: 1.5, points: {show: false}, spanGaps: false,
        fill: l.fill ? colour(`color-mix(in srgb, var(--${l.colour}) 12%, transparent)`) : undefined,
      }))],
    }, this.data, this.canvas);
  }

  // push adds a point at a Unix time; null values are a gap.
  push(time, values) {
    const [times] = this.data;
    times.push(time);
    values.forEach((v, i) => this.data[i + 1].push(v));
    while (times[0] < time - window_) this.data.forEach((d) => d.shift());
    this.plot.setData(this.data);
    this.label();
    if (times.length % 10 === 1) this.summarize();
    if (this.table.open) this.tabulate();
  }

  // summarize says in a sentence what the lines show. It is read when asked for, not when it changes.
  summarize() {
    text(this.summary, 'The last five minutes. ' + this.lines.map((l, i) => {
      const seen = this.data[i + 1].filter((v) => v != null);
      if (!seen.length) return l.name + ': nothing yet.';
      return `${l.name}: now ${this.show(seen[seen.length - 1])}, least ${this.show(Math.min(...seen))}, most ${this.show(Math.max(...seen))}.`;
    }).join(' '));
  }

  // tabulate fills the table: a line for each half minute has the last point of it.
  tabulate() {
    if (!this.table.open) return;
    const [times] = this.data;
    const last = new Map();
    times.forEach((t, i) => last.set(Math.floor(t / line), i));
    const show = (v) => (v == null ? '–' : this.show(v));
    keyed(this.body, [...last].reverse(), ([key]) => key, () => el('tr', {}, el('th', {scope: 'row'}), ...this.lines.map(() => el('td.num'))), (tr, [, i]) => {
      text(tr.children[0], second(times[i]));
      this.lines.forEach((l, n) => text(tr.children[n + 1], show(this.data[n + 1][i])));
    });
  }

  label() {
    if (!this.plot) return;
    const at = this.plot.cursor.idx ?? this.data[0].length - 1;
    this.values.forEach((node, i) => {
      const v = this.data[i + 1][at];
      text(node, v == null ? '–' : this.show(v));
    });
  }
}
