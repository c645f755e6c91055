package main

import (
	"errors"
	"regexp"
	"strings"
)

// tree draws the decision tree of a page: the list between its two marks, a question and its
// answer each: "- Question? Answer: what it does."
func tree(page string) (string, error) {
	list, err := marked(page, "tree")
	if err != nil {
		return "", err
	}
	c := canvas{title: "Which package?", alt: "The same as the list in the README."}
	c.text(20, 32, "h", "Which package?")
	y := 50.0
	items := regexp.MustCompile(`(?m)^- (.*?\?) (.*)$`).FindAllStringSubmatch(strings.ReplaceAll(list, "\n  ", " "), -1)
	if len(items) < 3 {
		return "", errors.New("the list has no questions")
	}
	for i, item := range items {
		question := wrap(plain(item[1]), treeQuestion-24)
		name, does, _ := strings.Cut(strings.TrimSuffix(plain(item[2]), "."), ": ")
		answer := wrap(does, treeAnswer-24)
		h := max(float64(len(question)), float64(len(answer)+1))*lineHeight + 18
		c.rect(20, y, treeQuestion, h, "box")
		c.lines(32, y+h/2+5-float64(len(question)-1)*lineHeight/2, "", question)
		x := 20.0 + treeQuestion + 60
		c.line(20+treeQuestion, y+h/2, x-2, y+h/2, "arrow")
		c.text(20+treeQuestion+28, y+h/2-6, "s m", "yes")
		c.rect(x, y, treeAnswer, h, []string{"blue", "violet", "green", "amber"}[i%4]+"-box")
		c.text(x+12, y+22, "b", name)
		c.lines(x+12, y+22+lineHeight, "s", answer)
		if i < len(items)-1 {
			c.line(20+treeQuestion/2, y+h, 20+treeQuestion/2, y+h+22, "arrow")
			c.text(20+treeQuestion/2+10, y+h+15, "s", "no")
		}
		y += h + 24
	}
	return c.svg(20+treeQuestion+60+treeAnswer+20, y-4), nil
}

const (
	treeQuestion = 290
	treeAnswer   = 430
)

// marked returns what stands between the two marks of a page.
func marked(page, mark string) (string, error) {
	_, rest, ok := strings.Cut(page, "<!-- "+mark+": begin -->")
	between, _, also := strings.Cut(rest, "<!-- "+mark+": end -->")
	if !ok || !also {
		return "", errors.New("the page has no marks of " + mark)
	}
	return between, nil
}

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plain takes Markdown's signs out of a text.
func plain(s string) string {
	return strings.NewReplacer("**", "", "`", "").Replace(markdownLink.ReplaceAllString(s, "$1"))
}
