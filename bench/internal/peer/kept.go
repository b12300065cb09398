//go:build linux

package peer

// kept returns penstock run with one configuration, without a keeper and with one that holds flows
// once they have relayed for a time. The differences between them are the cost of the keeper.
func kept(bin string) []Peer {
	return []Peer{
		Kept("penstock-alone", "penstock run without a keeper", bin, ""),
		Kept("penstock-keep", "penstock run with a keeper that holds flows after 1 s, as by default", bin, "{}"),
		Kept("penstock-keep0", "penstock run with a keeper that holds flows at once", bin, "{keep-after: 0s}"),
		Kept("penstock-keep5", "penstock run with a keeper that holds flows after 5 s", bin, "{keep-after: 5s}"),
	}
}

// guarded returns penstock run with the sandbox and a memory budget, and without both.
func guarded(bin string) []Peer {
	return []Peer{
		configured("penstock-guarded", "penstock run with the sandbox, as by default, and a memory budget of 4 GiB", bin, keys{engine: "memory: 4GiB", unlimited: true}),
		configured("penstock-unguarded", "penstock run without a sandbox and a memory budget", bin, keys{engine: "memory: none", sections: "sandbox: {mode: off}\n", unlimited: true}),
	}
}

// Kept returns penstock run with a keeper, whose section of the configuration is given. Without one
// it has no keeper.
func Kept(name, note, bin, keeper string) Peer {
	if keeper == "" {
		return configured(name, note, bin, keys{unlimited: true})
	}
	p := configured(name, note, bin, keys{sections: "keeper: " + keeper + "\n", unlimited: true})
	p.Admin = adminSocket
	return p
}
