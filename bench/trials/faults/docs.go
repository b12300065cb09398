//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

const introduction = `# What happens when things fail

Every row of this table is a fault that was done to Penstock, HAProxy and nginx, one after the other, with the same load and on the same machine, by one command:

    make faults

What is expected of a relay is written in code, for each fault, as a function of what was measured. A relay **held** if everything was as expected; otherwise the table says what was not. What is expected is the same for all three. A dash means that a relay has nothing that the fault could be done to.

## How it is measured

- **Old flows** are there before the fault: 24 streams over four upstreams, and 16 datagram flows. Their clients and upstreams send messages of 1 byte to 48 KiB and check every byte of what arrives: each byte is a function of its flow, its direction and its offset, so that one that is missing, comes twice or is somebody else's is noticed. A stream is lost if it ended, or if it stands still once the fault is over. A datagram flow is replaced if the upstream sees it come from another port than before.
- **New clients** come all the time, 40 streams and 20 datagram clients per second. Each is served, refused (its connect fails), cut off (accepted, and then ended without the answer), or late (no answer within 5 s).
- **Memory** is the largest resident memory of all the relay's processes together (anonymous and shared), **descriptors** the largest number, **CPU** what they used during the fault.
- Each measurement has fresh processes in network namespaces of their own: the load in one, the relay in the other. A service manager starts a relay whose first process has ended again after 100 ms. Where packets are lost, the two namespaces are joined by a link in user space, a pair of tun devices, so that no kernel module is needed.

## How the relays are set up

- **Penstock**: ` + "`penstock run`" + ` with two event loops and a keeper, as its packages set it up.
- **HAProxy**: master and worker, two threads. Its maxconn is what it computes from the limit of descriptors, as its manual advises; ` + "`option redispatch 1`" + `. It relays no datagrams.
- **nginx**: the stream module, two workers, ` + "`worker_connections`" + ` as many as there are descriptors. Its free version notices dead upstreams by failed connects only: ` + "`max_fails=1 fail_timeout=1s`" + `.
- All three: connect timeout 1 s, two retries at other upstreams, and, where there are any, health checks every 500 ms with two failures to go down. The configurations are in [relay.go](../bench/trials/faults/relay.go).

`

// document returns docs/faults.md.
func document(about string, all []*outcome) string {
	var b strings.Builder
	b.WriteString("<!-- made by make faults -->\n\n")
	b.WriteString(introduction)
	fmt.Fprintf(&b, "Measured with: %s.\n\n## Summary\n\n", about)
	b.WriteString(summary(all))
	part := ""
	for _, k := range kinds {
		rows := ofKind(all, k)
		if len(rows) == 0 {
			continue
		}
		if k.part != part {
			part = k.part
			fmt.Fprintf(&b, "\n## %s\n", part)
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\nExpected: %s\n\n", k.title, k.what, k.want)
		details(&b, rows)
	}
	return b.String()
}

func ofKind(all []*outcome, k *kind) (rows []*outcome) {
	for _, o := range all {
		if o.Kind == k.name {
			rows = append(rows, o)
		}
	}
	return rows
}

// summary is one line per fault, and a column per relay.
func summary(all []*outcome) string {
	var b strings.Builder
	names := []string{}
	for _, r := range relays {
		if slices.ContainsFunc(all, func(o *outcome) bool { return o.Relay == r.name }) {
			names = append(names, r.name)
		}
	}
	fmt.Fprintf(&b, "| fault | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	held, of := map[string]int{}, map[string]int{}
	for _, k := range kinds {
		rows := ofKind(all, k)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| [%s](#%s) |", k.title, anchor(k.title))
		for _, name := range names {
			text := "not measured"
			for _, o := range rows {
				if o.Relay != name {
					continue
				}
				text = verdictCell(o)
				if o.Error == "" && o.Absent == "" {
					of[name]++
					if o.Held {
						held[name]++
					}
				}
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	b.WriteString("| **held** |")
	for _, name := range names {
		fmt.Fprintf(&b, " **%d of %d** |", held[name], of[name])
	}
	b.WriteString("\n")
	return b.String()
}

// verdictCell tells the verdict in a few words: the heaviest complaint.
func verdictCell(o *outcome) string {
	switch {
	case o.Absent != "":
		return "–"
	case o.Error != "":
		return "not measured"
	case o.Held:
		return "held"
	}
	text, _, _ := strings.Cut(o.Bad[0], " (")
	text, _, _ = strings.Cut(text, ": ")
	return "**" + escape(text) + "**"
}

// escape keeps what relays say from being taken for Markdown.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "\n", " ", "_", `\_`).Replace(s)
}

// anchor is what GitHub makes of a heading.
func anchor(title string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(title) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
			b.WriteRune(c)
		case c == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

// details is a table with a line per relay, and what its counters say.
func details(b *strings.Builder, rows []*outcome) {
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.name)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, o := range rows {
		if o.Error != "" || o.Absent != "" {
			continue
		}
		fmt.Fprintf(b, "| %s |", o.Relay)
		for _, c := range columns {
			fmt.Fprintf(b, " %s |", c.text(o))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, o := range rows {
		fmt.Fprintf(b, "- **%s**: %s.", o.Relay, escape(o.plain()))
		if more := figures(o); more != "" {
			fmt.Fprintf(b, " Counted: %s.", escape(more))
		}
		b.WriteString("\n")
	}
}

// plain is short without what changes with each run.
func (o *outcome) plain() string {
	if o.Absent != "" {
		return o.Absent
	}
	return o.short()
}
