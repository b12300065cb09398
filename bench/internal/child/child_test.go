//go:build linux

package child

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

var parts = Parts{
	"add":  Answers(func(n *[2]int) (int, error) { return n[0] + n[1], nil }),
	"fail": Does(func(why *string) error { return errors.New(*why) }),
	"stay": Does(func(what *string) error { // until it is killed
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, os.Interrupt)
		<-stop
		return nil
	}),
	"count": Does(func(what *string) error {
		fmt.Println("counts", *what)
		n := 0
		for in := bufio.NewScanner(os.Stdin); in.Scan(); n++ {
		}
		_, err := fmt.Println(n)
		return err
	}),
}

func TestMain(m *testing.M) {
	if is, err := parts.Play(os.Args[1:]); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testnet.Main(m)
}

func run(t *testing.T, word string, what any, patience time.Duration) (result int, err error) {
	cmd, err := Command(word, what)
	if err != nil {
		t.Fatal(err)
	}
	err = Run(cmd, patience, &result)
	return result, err
}

func TestRun(t *testing.T) {
	if sum, err := run(t, "add", []int{2, 3}, testnet.Patience); err != nil || sum != 5 {
		t.Errorf("%d, %v", sum, err)
	}
	if _, err := run(t, "fail", "not today", 0); err == nil || !strings.HasSuffix(err.Error(), ": not today") {
		t.Errorf("a child that fails: %v", err)
	}
	if _, err := run(t, "stay", "", time.Millisecond); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a child that takes too long: %v", err)
	}
}

// A child that talks is told to end by the end of its input; one that says nothing is killed.
func TestTalk(t *testing.T) {
	c, line, err := Begin("count", "lines")
	if err != nil || line != "counts lines" {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprintln(c.In, "one\ntwo")
	if last, err := c.End(); err != nil || last != "2" {
		t.Errorf("%q, %v", last, err)
	}
	if _, _, err := Begin("fail", "at once"); err == nil || !strings.Contains(err.Error(), "the child fail says nothing") {
		t.Errorf("%v", err)
	}
}

func TestPlay(t *testing.T) {
	for _, args := range [][]string{nil, {"add"}, {"other", "{}"}, {"add", "1", "2"}} {
		if is, _ := parts.Play(args); is {
			t.Errorf("%q is a part", args)
		}
	}
}
