// Plot draws the pictures of the README from the raw text of a run, and writes its tables.
//
//	go run ./bench/plot -out docs/pictures bench/results/DATE-MACHINE
//
// The pictures go to -out, the tables into the results' own folder, as tables.md. Both need the
// files of their parts (bench/run names them); a picture whose files are missing is left out and
// reported.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/stat"
)

func main() {
	out := flag.String("out", "", "the `FOLDER` for the pictures; empty: that of the results")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "plot: want one argument, the folder of the results")
		os.Exit(2)
	}
	if *out == "" {
		*out = flag.Arg(0)
	}
	if err := drawAll(flag.Arg(0), *out); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// drawAll draws every picture whose results are in a folder.
func drawAll(results, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, p := range pictures {
		res, err := read(results, p.parts)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Printf("%s: left out: %v\n", p.name, err)
			continue
		}
		if err != nil {
			return err
		}
		path := filepath.Join(out, p.name+".png")
		if err := p.draw(path, res); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Println(path)
	}
	return writeTables(results)
}

// read joins the files of several parts. If their configurations differ, the first one's is used.
func read(folder string, parts []string) (all report.Result, err error) {
	for i, part := range parts {
		f, err := os.Open(filepath.Join(folder, part+".txt"))
		if err != nil {
			return all, err
		}
		res, err := report.Parse(f)
		f.Close()
		if err != nil {
			return all, err
		}
		if i == 0 {
			all.Config = res.Config
		}
		for k, v := range res.Config {
			if all.Config[k] == "" {
				all.Config[k] = v
			}
		}
		all.Rounds = append(all.Rounds, res.Rounds...)
	}
	return all, nil
}

// median returns the median for a relay with one loop, or NaN if it was not measured.
func median(res report.Result, load, peer, unit string) float64 {
	return stat.Median(column(res, load, peer, unit, 1))
}

func column(res report.Result, load, peer, unit string, loops int) []float64 {
	return res.Column(unit, map[string]string{"load": load, "peer": peer, "loops": strconv.Itoa(loops)})
}
