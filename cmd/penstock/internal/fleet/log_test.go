package fleet

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The log keeps the last entries.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		at := time.Now()
		for i := range 40 {
			if err := Log(t.Context(), w.client, testKey, Entry{At: at.Add(time.Duration(i) * time.Second), By: "me", What: "test", To: fmt.Sprint(i), Text: "one\nline"}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := ReadLog(t.Context(), w.client, testKey, 3)
		if err != nil || len(list) != 3 || list[0].To != "39" || list[0].Text != "one line" {
			t.Errorf("%+v, %v", list, err)
		}
		if err := trimLog(t.Context(), w.client, testKey, 10); err != nil {
			t.Fatal(err)
		}
		if list, err = ReadLog(t.Context(), w.client, testKey, 100); err != nil || len(list) != 10 || list[9].To != "30" {
			t.Errorf("%d entries, %v", len(list), err)
		}
	})
}
