package main

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"github.com/penstock/penstock/bench/internal/report"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bar is one relay under one load.
type bar struct {
	name  string
	value float64
	more  float64 // a thin line continues to this value; 0 means none
	note  string
}

// bars draws a panel for each load, with a bar for each relay.
func bars(title, subtitle string, panels []panel) func(string, report.Result) error {
	return func(path string, res report.Result) error {
		return columns(path, title, subtitle, res, panels, func(p panel, peer string) bar {
			b := bar{value: median(res, p.load, peer, p.raw) * p.scale}
			if loss := median(res, p.load, peer, "loss-%"); loss >= 0.5 {
				b.note = fmt.Sprintf("%.0f%% lost", loss)
			}
			if want, got := 10_000., median(res, p.load, peer, "conns"); p.load == "idle" && got < want*0.9 {
				b.note = thousands(got) + " connections"
			}
			return b
		})
	}
}

// ranges draws a bar to the median and a line to the 99th percentile.
func ranges(title, subtitle string, panels []panel) func(string, report.Result) error {
	return func(path string, res report.Result) error {
		return columns(path, title, subtitle, res, panels, func(p panel, peer string) bar {
			b := bar{value: median(res, p.load, peer, "p50-us") * p.scale, more: median(res, p.load, peer, "p99-us") * p.scale}
			if b.more > 0 {
				b.note = "to " + short(b.more)
			}
			return b
		})
	}
}

const (
	perRow   = 3
	gap      = 20 // between panels
	rowStep  = 15 // from bar to bar
	barWidth = 10
	titleGap = 44 // from a panel's top to its first bar
)

func columns(path, title, subtitle string, res report.Result, panels []panel, of func(panel, string) bar) error {
	each := make([][]bar, len(panels))
	tallest := 0
	for i, p := range panels {
		each[i] = best(p, of)
		tallest = max(tallest, len(each[i]))
	}
	rows := (len(panels) + perRow - 1) / perRow
	panelHeight := vg.Length(titleGap + tallest*rowStep + gap)
	w := (width - 2*margin - (perRow-1)*gap) / perRow
	return page(path, title, subtitle, foot(res), vg.Length(rows)*panelHeight, func(c draw.Canvas, top vg.Length) {
		for i, p := range panels {
			x := margin + vg.Length(i%perRow)*(w+gap)
			drawPanel(c, x, top-vg.Length(i/perRow)*panelHeight, w, p, each[i])
		}
	})
}

// best returns the bars of a load: each relay in the setup that does best, among those that lose
// nothing if there are any.
func best(p panel, of func(panel, string) bar) (all []bar) {
	for _, r := range relays {
		var found bar
		for _, peer := range r.peers {
			b := of(p, peer)
			if math.IsNaN(b.value) {
				continue
			}
			if found.name == "" || b.note == "" && found.note != "" || b.value < found.value && (b.note == "") == (found.note == "") {
				b.name = r.name
				found = b
			}
		}
		if found.name != "" {
			all = append(all, found)
		}
	}
	return all
}

// drawPanel draws a panel whose top left corner is at x, y.
func drawPanel(c draw.Canvas, x, y, w vg.Length, p panel, bars []bar) {
	const names = 56
	write(c, x, y-11, p.title, style(10.5, true, ink))
	write(c, x, y-23, p.unit, style(8.5, false, faint))
	if s, col := verdict(bars); s != "" {
		write(c, x, y-35, s, style(8.5, true, col))
	}
	if len(bars) == 0 {
		return
	}
	label := style(8.5, false, ink)
	// The longest bar leaves room for its own label.
	scale := math.Inf(1)
	for _, b := range bars {
		room := float64(w - names - 6 - label.Width(b.label()))
		scale = min(scale, room/max(b.value, b.more))
	}
	for i, b := range bars {
		at := y - titleGap - vg.Length(i*rowStep) - barWidth
		col, st := color.Color(theirs), label
		if i == 0 && b.name == relays[0].name {
			col, st = ours, style(8.5, true, ink)
		}
		writeRight(c, x+names-5, at+2, b.name, st)
		end := max(vg.Length(b.value*scale), 0.8)
		fill(c, x+names, at, end, barWidth, col)
		if b.more > 0 {
			far := vg.Length(b.more * scale)
			stroke(c, x+names+end, at+barWidth/2, x+names+far, at+barWidth/2, 1.4, col)
			stroke(c, x+names+far, at+2, x+names+far, at+barWidth-2, 1.4, col)
			end = max(end, far)
		}
		write(c, x+names+end+4, at+2, b.label(), st)
	}
	stroke(c, x+names, y-titleGap+3, x+names, y-titleGap-vg.Length(len(bars)*rowStep)+2, 0.6, faint)
}

func (b bar) label() string {
	if b.note == "" {
		return short(b.value)
	}
	if b.more > 0 {
		return short(b.value) + " " + b.note
	}
	return short(b.value) + " (" + b.note + ")"
}

// verdict compares the first bar with the best of the others.
func verdict(bars []bar) (string, color.Color) {
	if len(bars) < 2 || bars[0].name != relays[0].name {
		return "", nil
	}
	peer := bars[1]
	for _, b := range bars[2:] {
		if b.value < peer.value {
			peer = b
		}
	}
	ratio := bars[0].value / peer.value
	s := fmt.Sprintf("%.2f × the best peer (%s)", ratio, peer.name)
	switch {
	case ratio < 0.97:
		return s, ahead
	case ratio <= 1.03:
		return s + ": level", faint
	}
	return s + ": behind", behind
}

// short formats x with three significant digits and without an exponent.
func short(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
