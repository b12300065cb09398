//go:build linux

package world

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// openedAt returns how many stream clients connected to a listener.
func (w *World) openedAt(name string) (int64, bool) {
	n, ok := w.opened.Load(name)
	if !ok {
		return 0, false
	}
	return n.(*atomic.Int64).Load(), true
}

// CheckRecords compares the access log with what the flows that ended well moved. A worker that dies
// takes the lines with it that it had not written yet: missing records are shown, and a fault only if
// no worker died. That one flow has two records is always a fault.
func (w *World) CheckRecords(dir string) error {
	f, err := os.Open(filepath.Join(dir, "access.log"))
	if err != nil {
		return err
	}
	defer f.Close()
	type sizes struct {
		client   string
		up, down int64
	}
	found, ids, lines := make(map[sizes]int), make(map[string]int), 0
	torn := 0
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line map[string]any
		err := json.Unmarshal(in.Bytes(), &line)
		if err != nil && torn < w.Kills.number() && bytes.Count(in.Bytes(), []byte(`{"time"`)) <= 1 {
			torn++ // its writer was killed
			continue
		}
		if err != nil {
			w.Tally.Fault(recordsWrong, "line of the access log: %v: %s", err, in.Bytes())
			continue
		}
		lines++
		id := fmt.Sprint(line["id"])
		if ids[id]++; ids[id] == 2 {
			w.Tally.Fault(recordsWrong, "flow %s has more than one record: %s", id, in.Bytes())
		}
		client, _ := line["client"].(string)
		up, _ := line["bytes_up"].(float64)
		down, _ := line["bytes_down"].(float64)
		found[sizes{client, int64(up), int64(down)}]++
	}
	missing := 0
	for _, r := range w.records {
		s := sizes{r.client, r.up, r.down}
		if found[s] == 0 {
			if missing++; w.Kills.number() == 0 {
				w.Tally.Fault(recordsWrong, "%s has no record with client %s, %d bytes up, %d bytes down", r.text, r.client, r.up, r.down)
			}
			continue
		}
		found[s]--
	}
	fmt.Fprintf(w.Tally.Out, "\n%d records, and %d of which a kill has left a part; of %d flows that ended well %d have none with their client and bytes\n", lines, torn, len(w.records), missing)
	return in.Err()
}
