// Package sources is where a configuration comes from: files, which are watched; registries, which are followed; and the last
// good text of each registry on this host's disk.
//
//	Open ──▶ Await ──▶ (config.Source reads Text) ──▶ Settle ──▶ Changes, Take, ... Settle
package sources
