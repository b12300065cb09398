// Percentiles of histograms, whose counts run since the daemon's start.

// since returns what was counted between two histograms; before may be missing. A count that has gone
// back belongs to another process: then all that is there is new.
export function since(now, before) {
  if (!before || before.counts.length !== now.counts.length || now.counts.some((n, i) => n < before.counts[i])) return now;
  return {bounds: now.bounds, counts: now.counts.map((n, i) => n - before.counts[i]), sum: now.sum - before.sum};
}

export const total = (h) => h.counts.reduce((sum, n) => sum + n, 0);

// quantile returns the value below which a share of what was counted lies, or null if there was
// nothing. Between two bounds it is taken as even; above the last bound it is that bound.
export function quantile(h, share) {
  const all = total(h);
  if (!all) return null;
  let left = share * all;
  for (let i = 0; i < h.bounds.length; i++) {
    const n = h.counts[i];
    if (n && left <= n) {
      const low = i ? h.bounds[i - 1] : 0;
      return low + (h.bounds[i] - low) * left / n;
    }
    left -= n;
  }
  return h.bounds[h.bounds.length - 1] ?? null;
}
