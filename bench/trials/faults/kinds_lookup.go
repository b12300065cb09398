//go:build linux

package main

import (
	"os"
	"path/filepath"
	"time"
)

// lookupKind is a kind in which members come from DNS, every second, and the server does something else
// than to tell them.
func lookupKind(k kind, l lie) *kind {
	k.part = "DNS"
	k.needs.DNS = true
	k.fault = func(w *testbed) error {
		asked := w.dns.asked.Load()
		w.dns.lie.Store(int32(l))
		time.Sleep(w.last(6 * time.Second))
		w.note("questions", float64(w.dns.asked.Load()-asked))
		w.dns.lie.Store(int32(truth))
		return nil
	}
	k.expect = unnoticedWithin(64)
	return &k
}

var lookupKinds = []*kind{
	lookupKind(kind{
		name: "dns-dead", title: "DNS does not answer",
		what: "Members come from DNS, which is asked every second (nginx: for each flow whose answer is older than a second) and answers nothing for 6 s.",
		want: "The members that were known stay.",
	}, silence),
	lookupKind(kind{
		name: "dns-failing", title: "DNS answers with failures",
		what: "The server answers SERVFAIL for 6 s.",
		want: "The members that were known stay.",
	}, failure),
	lookupKind(kind{
		name: "dns-absent", title: "DNS says that the name does not exist",
		what: "The server answers NXDOMAIN for 6 s.",
		want: "The members that were known stay for 30 s, as far as that can be configured: an empty zone is more often a mistake than a wish.",
	}, absent),
	lookupKind(kind{
		name: "dns-garbage", title: "DNS answers garbage",
		what: "The server answers with random bytes, a wrong id, half an answer, or another name and the address of a stranger.",
		want: "Nothing of that is believed, and the members that were known stay.",
	}, garbage),
	lookupKind(kind{
		name: "dns-forged", title: "Answers from somebody else",
		what: "Before each true answer, one comes that says with the right id that the name does not exist, but from another port.",
		want: "It is not believed.",
	}, stranger),
	lookupKind(kind{
		name: "dns-huge", title: "DNS answers with 1,000 addresses", needs: needs{Wild: true},
		what: "The answer is cut short, and by TCP it has 1,000 addresses, at each of which a member serves. Flows are streams only.",
		want: "Flows do not notice, and memory stays below 64 MB more.",
	}, huge),
	lookupKind(kind{
		name: "dns-flapping", title: "DNS answers differ each time",
		what: "The server answers with four addresses and with one of them, in turn.",
		want: "Flows do not notice: members that are gone from an answer keep their flows.",
	}, turns),
	{
		name: "resolv-conf", part: "DNS", title: "Garbage in resolv.conf", needs: needs{DNS: true},
		what: "Random bytes are written over /etc/resolv.conf, and the configuration is read again. (nginx has its resolver in its own configuration.)",
		want: "The members that were known stay, and the reload succeeds or is refused without harm.",
		fault: func(w *testbed) error {
			w.replace.Store(true)
			f, err := os.OpenFile(filepath.Join(w.dir, "resolv.conf"), os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			f.Write(append(random(3000), "\nnameserver not-an-address\nnameserver 999.1.1.1\noptions timeout:x ndots:-1\n"...))
			time.Sleep(w.last(2 * time.Second))
			if err := w.r.reload(w); err != nil {
				w.note("reloads refused", 1)
			}
			time.Sleep(w.last(3 * time.Second))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.alive(o)
			v.streams(o)
			v.served(o, 500*time.Millisecond)
			v.flowing(o, time.Second, 0.02)
		},
	},
}
