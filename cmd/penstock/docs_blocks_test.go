package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block is one piece of code in a page: fenced, or indented by four columns.
type block struct {
	page string
	line int    // of its first line, counted from 1
	lang string // of its fence
	text []string
}

// blocks finds the blocks of a page.
func blocks(page, text string) (list []block) {
	lines := strings.Split(text, "\n")
	indented := func(i int) bool { return strings.HasPrefix(lines[i], "    ") && strings.TrimSpace(lines[i]) != "" }
	empty := func(i int) bool { return i < 0 || strings.TrimSpace(lines[i]) == "" }
	for i := 0; i < len(lines); i++ {
		b := block{page: page}
		lang, fenced := strings.CutPrefix(strings.TrimSpace(lines[i]), "```")
		switch {
		case fenced:
			b.line, b.lang = i+2, lang
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
				b.text = append(b.text, lines[i])
			}
		case indented(i) && empty(i-1):
			margin := len(lines[i]) - len(strings.TrimLeft(lines[i], " "))
			b.line = i + 1
			for ; i < len(lines) && (indented(i) || empty(i)); i++ {
				b.text = append(b.text, lines[i][min(margin, len(lines[i])-len(strings.TrimLeft(lines[i], " "))):])
			}
			i--
			for b.text[len(b.text)-1] == "" {
				b.text = b.text[:len(b.text)-1]
			}
		default:
			continue
		}
		list = append(list, b)
	}
	return list
}

var (
	// fileName matches the first line of a block that is a file.
	fileName = regexp.MustCompile(`^# (\S+\.yaml)$`)
	// begun matches the first line of commands that stand without a fence that says so.
	begun = regexp.MustCompile(`^(\$ |\./|bench/|\.ci/|[A-Z_]+=\S|(apt|apt-get|bash|cat|cd|curl|docker|git|go|ip|kill|make|mkdir|nc|openssl|pkill|sed|sh|sudo|sysctl|systemctl|tar|taskset|unshare) |penstock [a-z])`)
)

// isShell reports whether the block is commands for a shell.
func (b block) isShell() bool {
	return slices.Contains([]string{"sh", "bash", "console"}, b.lang) || b.lang == "" && begun.MatchString(b.text[0])
}

// file returns the name of the file whose content the block is, if its first line says that.
func (b block) file() string {
	if m := fileName.FindStringSubmatch(b.text[0]); m != nil {
		return m[1]
	}
	return ""
}

// isYAML reports whether the block is a file in YAML, or a part of one.
func (b block) isYAML() bool { return b.lang == "yaml" || b.lang == "" && b.file() != "" }

// A typed line is one that a person pastes into a shell, and what the page says that it answers.
type typed struct {
	line    int
	command string // or one line of a command of several lines
	answer  []string
}

// commands returns the lines of a block of commands. If the first one begins with a prompt, those without are answers, but for
// here-documents.
func (b block) commands() (list []typed) {
	prompt := ""
	for _, p := range []string{"$ ", "# "} {
		if strings.HasPrefix(b.text[0], p) && (p == "$ " || b.lang == "console") {
			prompt = p
		}
	}
	here := ""
	for i, text := range b.text {
		command, prompted := strings.CutPrefix(text, prompt)
		switch {
		case prompt == "" || prompted || here != "":
			list = append(list, typed{line: b.line + i, command: command})
		default:
			last := &list[len(list)-1]
			last.answer = append(last.answer, text)
		}
		if text == here {
			here = ""
		} else if m := hereDocument.FindStringSubmatch(text); m != nil {
			here = m[1]
		}
	}
	return list
}

var hereDocument = regexp.MustCompile(`<<'?([A-Z]+)'?`)

func TestBlocks(t *testing.T) {
	const page = "# T\n\n    make check\n\n    go test\n\nText:\n\n```console\n# cat >f <<END\na: 1\nEND\n# cat f\na: 1\n```\n\n" +
		"1. Item:\n\n        $ nc host\n        hello\n\n```yaml\na: 1\n```\n\n    # f.yaml\n    a: 1\n\n```\ndrawing -> text\n```\n    no block\n"
	got := blocks("p.md", page)
	if len(got) != 6 {
		t.Fatalf("%d blocks: %+v", len(got), got)
	}
	for i, want := range []struct {
		line        int
		shell, yaml bool
		commands    []typed
	}{
		{3, true, false, []typed{{3, "make check", nil}, {4, "", nil}, {5, "go test", nil}}},
		{10, true, false, []typed{{10, "cat >f <<END", nil}, {11, "a: 1", nil}, {12, "END", nil}, {13, "cat f", []string{"a: 1"}}}},
		{19, true, false, []typed{{19, "nc host", []string{"hello"}}}},
		{23, false, true, nil},
		{26, false, true, nil},
		{30, false, false, nil},
	} {
		b := got[i]
		if b.line != want.line || b.isShell() != want.shell || b.isYAML() != want.yaml {
			t.Errorf("block %d: %+v, shell %v, YAML %v", i, b, b.isShell(), b.isYAML())
		} else if want.shell && !slices.EqualFunc(b.commands(), want.commands, func(a, b typed) bool {
			return a.line == b.line && a.command == b.command && slices.Equal(a.answer, b.answer)
		}) {
			t.Errorf("block %d: commands %+v", i, b.commands())
		}
	}
	if f := got[4].file(); f != "f.yaml" {
		t.Errorf("the file is %q", f)
	}
}
