package main

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/bench/internal/report"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// curves draws figures over the number of connections, which follows the name of the load.
func curves(title, subtitle, load string, figures []curve) func(string, report.Result) error {
	return func(path string, res report.Result) error {
		counts := connections(res, load)
		if len(counts) < 2 {
			return fmt.Errorf("want at least two numbers of connections, have %v", counts)
		}
		const height, legend = 270, 22
		return page(path, title, subtitle, foot(res), height+legend+10, func(c draw.Canvas, top vg.Length) {
			x := vg.Length(margin)
			for i, r := range relays {
				stroke(c, x, top-8, x+16, top-8, 2.2, lines[i])
				x += 21 + write(c, x+21, top-11, r.name, style(9.5, i == 0, ink)) + 18
			}
			w := (width - 2*margin - gap) / vg.Length(len(figures))
			for i, f := range figures {
				x := margin + vg.Length(i)*(w+gap)
				drawCurve(draw.Crop(c, x, x+w-width, top-legend-height-c.Min.Y, top-legend-c.Max.Y), res, load, counts, f)
			}
		})
	}
}

func drawCurve(c draw.Canvas, res report.Result, load string, counts []int, f curve) {
	p := plot.New()
	p.Title.Text = f.title
	p.Title.TextStyle = style(10.5, true, ink)
	p.Title.TextStyle.XAlign, p.Title.TextStyle.YAlign = draw.XCenter, draw.YTop
	p.Title.Padding = 6
	p.X.Label.Text = "connections"
	p.X.Scale = plot.LogScale{}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		align := a.Label.TextStyle
		a.Label.TextStyle = style(9, false, faint)
		a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign = align.XAlign, align.YAlign
		align = a.Tick.Label
		a.Tick.Label = style(8.5, false, ink)
		a.Tick.Label.XAlign, a.Tick.Label.YAlign = align.XAlign, align.YAlign
		a.Color, a.Tick.Color = faint, faint
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks(1, 10_000))
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = grid, grid
	p.Add(g)
	low, high := math.Inf(1), 0.
	for i, r := range slices.Backward(relays) { // penstock is drawn last
		var xys plotter.XYs
		for _, n := range counts {
			for _, peer := range r.peers {
				name := load + strconv.Itoa(n)
				y, x := median(res, name, peer, f.raw)*f.scale, median(res, name, peer, "conns")
				if x > 0.9*float64(n) { // not runs with fewer connections than asked for
					xys = append(xys, plotter.XY{X: x, Y: y})
					low, high = min(low, y), max(high, y)
					break
				}
			}
		}
		if len(xys) == 0 {
			continue
		}
		l, s, err := plotter.NewLinePoints(xys)
		if err != nil {
			continue
		}
		l.Color, l.Width = lines[i], 1.8
		s.Color, s.Shape, s.Radius = lines[i], draw.CircleGlyph{}, 2.4
		p.Add(l, s)
	}
	p.X.Min, p.X.Max = 0.85, 12_000
	p.Y.Min, p.Y.Max = 0, high*1.1
	p.Y.Tick.Marker = plot.ConstantTicks(tens(high))
	if f.log {
		p.Y.Scale = plot.LogScale{}
		p.Y.Min, p.Y.Max = low/1.15, high*1.15
		p.Y.Tick.Marker = plot.ConstantTicks(ticks(p.Y.Min, p.Y.Max))
	}
	p.BackgroundColor = color.White
	p.Draw(c)
}

// connections returns the numbers that follow the name of a load.
func connections(res report.Result, load string) (counts []int) {
	for _, r := range res.Rounds {
		rest, ok := strings.CutPrefix(r.Keys["load"], load)
		n, err := strconv.Atoi(rest)
		if ok && err == nil && !slices.Contains(counts, n) {
			counts = append(counts, n)
		}
	}
	slices.Sort(counts)
	return counts
}

// ticks returns powers of ten and, if the axis is short, also twice and five times those.
func ticks(low, high float64) (all []plot.Tick) {
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < low || v > high {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || high/low < 200 {
				t.Label = thousands(v)
			}
			all = append(all, t)
		}
	}
	return all
}

// tens returns the ticks of a linear axis from 0.
func tens(high float64) (all []plot.Tick) {
	for v := 0.; v <= high*1.1; v += 10 {
		all = append(all, plot.Tick{Value: v, Label: thousands(v)})
	}
	return all
}

// thousands formats a whole number with commas, and a fraction without.
func thousands(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	for i := len(s) - 3; i > 0 && v >= 1000; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
