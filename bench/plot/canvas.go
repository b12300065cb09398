package main

import (
	"image/color"
	"os"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A picture is as wide as a page of text, at twice the resolution. Lengths are in points of 1/72
// inch, with the origin at the bottom left.
const (
	width      = 660 * vg.Length(1)
	resolution = 192
	margin     = 14
)

var (
	ink    = color.Gray{0x22}
	faint  = color.Gray{0x70}
	grid   = color.Gray{0xe0}
	ours   = color.RGBA{0x00, 0x5f, 0xb8, 0xff}
	theirs = color.RGBA{0xb4, 0xbc, 0xc6, 0xff}
	behind = color.RGBA{0xb3, 0x26, 0x1e, 0xff}
	ahead  = color.RGBA{0x1b, 0x73, 0x3a, 0xff}
	lines  = []color.Color{ours, color.RGBA{0xd9, 0x82, 0x1b, 0xff}, color.RGBA{0x1f, 0x8a, 0x5b, 0xff}, color.RGBA{0xa8, 0x4f, 0x9c, 0xff}, color.Gray{0x80}}
)

var fonts = font.NewCache(liberation.Collection())

func style(size vg.Length, bold bool, c color.Color) draw.TextStyle {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return draw.TextStyle{Color: c, Font: f, Handler: text.Plain{Fonts: fonts}}
}

// write draws one line of text, with the left end of its baseline at x, y, and returns its width.
func write(c draw.Canvas, x, y vg.Length, s string, st draw.TextStyle) vg.Length {
	c.FillText(st, vg.Point{X: x, Y: y}, s)
	return st.Width(s)
}

// writeRight draws one line of text with its right end at x.
func writeRight(c draw.Canvas, x, y vg.Length, s string, st draw.TextStyle) {
	write(c, x-st.Width(s), y, s, st)
}

func fill(c draw.Canvas, x, y, w, h vg.Length, col color.Color) {
	c.FillPolygon(col, []vg.Point{{X: x, Y: y}, {X: x + w, Y: y}, {X: x + w, Y: y + h}, {X: x, Y: y + h}})
}

func stroke(c draw.Canvas, x0, y0, x1, y1, w vg.Length, col color.Color) {
	c.StrokeLine2(draw.LineStyle{Color: col, Width: w}, x0, y0, x1, y1)
}

// page draws title, subtitle and foot around a body of the given height, and writes the file.
func page(path, title, subtitle, foot string, height vg.Length, body func(c draw.Canvas, top vg.Length)) error {
	const head, lineOfFoot = 52, 11
	footLines := strings.Split(foot, "\n")
	full := height + head + vg.Length(len(footLines))*lineOfFoot + 2*margin
	img := vgimg.NewWith(vgimg.UseWH(width, full), vgimg.UseDPI(resolution), vgimg.UseBackgroundColor(color.White))
	c := draw.New(img)
	write(c, margin, full-margin-14, title, style(17, true, ink))
	write(c, margin, full-margin-30, subtitle, style(10, false, faint))
	body(c, full-margin-head)
	for i, line := range footLines {
		write(c, margin, margin+vg.Length(len(footLines)-1-i)*lineOfFoot, line, style(7.5, false, faint))
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
