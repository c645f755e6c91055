package main

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// A canvas collects the elements of one picture.
type canvas struct {
	title, alt string
	css        strings.Builder // besides what all pictures share
	body       strings.Builder
}

// style has the colours, for a light and a dark page, and what the classes look like.
// A picture has a background of its own, so it can be read whatever the page does.
const style = `
svg{--bg:#ffffff;--fg:#1f2328;--soft:#59636e;--line:#d1d9e0;--panel:#f6f8fa;--blue:#0969da;--green:#1a7f37;--violet:#8250df;--red:#cf222e;--amber:#9a6700;--blue-bg:#ddf4ff;--green-bg:#dafbe1;--violet-bg:#fbefff;--red-bg:#ffebe9;--amber-bg:#fff8c5}
@media (prefers-color-scheme:dark){svg{--bg:#0d1117;--fg:#f0f6fc;--soft:#9198a1;--line:#3d444d;--panel:#151b23;--blue:#4493f8;--green:#3fb950;--violet:#ab7df8;--red:#f85149;--amber:#d29922;--blue-bg:#121d2f;--green-bg:#12261e;--violet-bg:#211a34;--red-bg:#25171c;--amber-bg:#272115}}
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI","Noto Sans","Liberation Sans",Arial,sans-serif;font-size:13px;fill:var(--fg)}
.h{font-size:16px;font-weight:600}.b{font-weight:600}.s{fill:var(--soft);font-size:12px}.m{text-anchor:middle}.e{text-anchor:end}
.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:12px}
.bg{fill:var(--bg)}.line{stroke:var(--line);stroke-width:1;fill:none}.dash{stroke-dasharray:4 4}.arrow{stroke:var(--fg);stroke-width:1.4;fill:none;marker-end:url(#tip)}
.tip{fill:var(--fg)}.box{fill:var(--panel);stroke:var(--line)}
.blue{fill:var(--blue)}.green{fill:var(--green)}.violet{fill:var(--violet)}.red{fill:var(--red)}.amber{fill:var(--amber)}.soft{fill:var(--line)}
.soft-box{fill:var(--panel);stroke:var(--line)}.blue-box{fill:var(--blue-bg);stroke:var(--blue)}.green-box{fill:var(--green-bg);stroke:var(--green)}.violet-box{fill:var(--violet-bg);stroke:var(--violet)}.red-box{fill:var(--red-bg);stroke:var(--red)}.amber-box{fill:var(--amber-bg);stroke:var(--amber)}
`

// colours are the names that a diagram may use.
var colours = map[string]bool{"blue": true, "green": true, "violet": true, "red": true, "amber": true, "soft": true}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.body, format+"\n", args...) }

func (c *canvas) text(x, y float64, class, s string) {
	c.add(`<text x="%s" y="%s" class="%s">%s</text>`, n(x), n(y), class, html.EscapeString(s))
}

// lines writes a text in several lines and returns the height that they take.
func (c *canvas) lines(x, y float64, class string, all []string) float64 {
	for i, s := range all {
		c.text(x, y+float64(i)*lineHeight, class, s)
	}
	return float64(len(all)) * lineHeight
}

const lineHeight = 17

func (c *canvas) rect(x, y, w, h float64, class string) {
	c.add(`<rect x="%s" y="%s" width="%s" height="%s" rx="5" class="%s"/>`, n(x), n(y), n(w), n(h), class)
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	c.add(`<path d="M%s %sL%s %s" class="%s"/>`, n(x1), n(y1), n(x2), n(y2), class)
}

// cross marks an end.
func (c *canvas) cross(x, y float64) {
	c.add(`<path d="M%s %sl12 12m0 -12l-12 12" stroke="var(--red)" stroke-width="3" fill="none"/>`, n(x-6), n(y-6))
}

func (c *canvas) svg(w, h float64) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-labelledby="title desc">
<!-- drawn by make pictures: change its text, not this file -->
<title id="title">%s</title>
<desc id="desc">%s</desc>
<style>%s%s</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>
<rect width="%s" height="%s" rx="8" class="bg"/>
%s</svg>
`, n(w), n(h), n(w), n(h), html.EscapeString(c.title), html.EscapeString(c.alt), style, c.css.String(), n(w), n(h), c.body.String())
}

// n writes a number with at most one decimal, so that a picture is drawn the same everywhere.
func n(x float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}

// width estimates how wide a text is; no font is at hand to measure it.
func width(s string) float64 { return 6.9 * float64(utf8.RuneCountInString(s)) }

// wrap breaks a text into lines that are about as wide as w at most. A "|" breaks it in any case.
func wrap(s string, w float64) (all []string) {
	for part := range strings.SplitSeq(s, "|") {
		now := ""
		for word := range strings.FieldsSeq(part) {
			switch {
			case now == "":
				now = word
			case width(now+" "+word) <= w:
				now += " " + word
			default:
				all, now = append(all, now), word
			}
		}
		all = append(all, now)
	}
	return all
}
