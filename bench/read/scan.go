package read

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// line is a line of text, without what a launcher or a terminal added.
type line struct {
	number int
	text   string
	cut    bool // the file ends in it
}

// scan hands the lines and JSON documents of a file to the parsers.
func scan(r io.Reader, s *sink, parsers []parser) {
	limited := &io.LimitedReader{R: r, N: maxFile + 1}
	in := bufio.NewReaderSize(limited, maxLine)
	d := collector{sink: s, parsers: parsers}
	number := 0
	for {
		raw, err := in.ReadSlice('\n')
		if len(raw) > 0 {
			number++
			d.line(line{number, string(trim(raw)), err != nil})
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			s.fail(number, "line is longer than %d bytes: the rest of it is not read", maxLine)
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
		}
		switch {
		case limited.N == 0:
			s.fail(number, "file is larger than %d bytes: the rest is not read", maxFile)
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			s.fail(number, "read failed: %v", err)
		case number == 0:
			s.fail(0, "file is empty")
		}
		d.end()
		return
	}
}

// Launchers put a rank before each line: mpirun --tag-output "[1,0]<stdout>:", srun --label "0: ", which it pads. Logs
// of containers put a time before it: kubectl logs --timestamps.
var (
	rank   = regexp.MustCompile(`^(?:\[\d+,\d+\](?:<\w+>)?:| {0,6}\d+: )`)
	clock  = regexp.MustCompile(`^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? `)
	colour = regexp.MustCompile(`\x1b(\[[^@-~]*[@-~]?)?`)
)

func trim(raw []byte) []byte {
	raw = bytes.TrimRight(raw, "\r\n")
	if bytes.IndexByte(raw, 0x1b) >= 0 {
		raw = colour.ReplaceAll(raw, nil)
	}
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	for range 2 { // in either order
		if len(raw) > 0 && (raw[0] == '[' || raw[0] == ' ' || raw[0] >= '0' && raw[0] <= '9') {
			raw = raw[len(clock.Find(raw)):]
			raw = raw[len(rank.Find(raw)):]
		}
	}
	return raw
}

// collector tells JSON documents from text.
type collector struct {
	sink     *sink
	parsers  []parser
	doc      []byte // of the document that is open
	start    int    // its first line; 0: none is open
	depth    int
	inString bool
	escaped  bool
	seen     bool // a character after the first brace
}

func (c *collector) line(l line) {
	switch begin := strings.TrimLeft(l.text, " \t"); {
	case c.start == 0:
	case c.inString, begin != "" && !withinDocument(begin): // a string has no line break
		c.close() // it was cut
	case c.seen && strings.HasPrefix(l.text, "{"):
		c.close() // the one before was cut
	case !c.seen && begin != "" && begin[0] != '"' && begin[0] != '}':
		c.start, c.depth = 0, 0 // a brace of something else
	}
	text := l.text
	for {
		if c.start == 0 {
			text = strings.TrimLeft(text, " \t[],")
			if !opensDocument(text) {
				break
			}
			c.start, c.doc, c.seen = l.number, nil, false
		}
		rest, ended := c.read(text)
		if !ended {
			return
		}
		text = rest
	}
	if text != "" && len(text) == len(strings.TrimLeft(l.text, " \t[],")) { // no document was in it
		for _, p := range c.parsers {
			p.text(l)
		}
	}
}

// barewords can begin a line of JSON, or of what perftest writes for it.
var barewords = regexp.MustCompile(`^(?:true|false|null|sl:|-?nan|-?inf|-?\d)`)

// withinDocument reports whether a line can be a part of a JSON document.
func withinDocument(text string) bool {
	return strings.IndexByte(`"{}[],:`, text[0]) >= 0 || barewords.MatchString(text)
}

func opensDocument(text string) bool {
	inside, ok := strings.CutPrefix(text, "{")
	inside = strings.TrimLeft(inside, " \t")
	return ok && (inside == "" || inside[0] == '"' || inside[0] == '}')
}

// read adds text to the document, up to its end.
func (c *collector) read(text string) (rest string, ended bool) {
	for i := range len(text) {
		b := text[i]
		switch {
		case c.escaped:
			c.escaped = false
		case c.inString && b == '\\':
			c.escaped = true
		case b == '"':
			c.inString = !c.inString
		case c.inString:
		case b == '{' || b == '[':
			c.depth++
		case b == '}' || b == ']':
			c.depth--
		}
		c.seen = c.seen || c.depth != 1 || b != '{' && b != ' ' && b != '\t'
		if c.depth == 0 {
			c.doc = append(c.doc, text[:i+1]...)
			c.close()
			return text[i+1:], true
		}
	}
	c.doc = append(append(c.doc, text...), '\n')
	if len(c.doc) > maxDocument {
		c.sink.fail(c.start, "JSON document is larger than %d bytes", maxDocument)
		c.close()
		return "", true
	}
	return "", false
}

// close hands the document to the parser that knows it. Others are no error where something else is known.
func (c *collector) close() {
	d := newDocument(c.start, c.doc)
	c.doc, c.start, c.depth, c.inString, c.escaped = nil, 0, 0, false, false
	for _, p := range c.parsers {
		if p.document(d) {
			return
		}
	}
	if d.err != nil {
		c.sink.fail(d.errorLine(), "invalid JSON, or it was cut: %v", d.err)
	}
}

func (c *collector) end() {
	if c.start > 0 {
		c.close()
	}
}

// noDocuments is for tools that print no JSON.
type noDocuments struct{}

func (noDocuments) document(*document) bool { return false }

// numeric reports whether a field of a table is a figure.
func numeric(field string) bool {
	_, err := parseFloat(field)
	return err == nil || errors.Is(err, strconv.ErrRange) || field == "N/A"
}

// parseFloat is [strconv.ParseFloat] with -nan, which the C library prints for 0 ÷ 0.
func parseFloat(text string) (float64, error) {
	return strconv.ParseFloat(strings.Replace(strings.ToLower(text), "-nan", "nan", 1), 64)
}

// columns are those of a table, by the names in its header.
type columns struct {
	names  []string
	before int // fields that a log puts before each line, such as the time
}

// header finds the columns that match.
func header(text string, names *regexp.Regexp) (c columns) {
	for i, at := range names.FindAllStringIndex(text, -1) {
		if i == 0 {
			c.before = len(strings.Fields(text[:at[0]]))
		}
		c.names = append(c.names, text[at[0]:at[1]])
	}
	return c
}

// row returns the figures of a row by their columns. Cut is a row with too few of them.
func (c columns) row(l line) (cells map[string]string, cut bool) {
	fields := strings.Fields(l.text)
	n := len(c.names)
	for _, from := range []int{c.before, len(fields) - n, 0} {
		if from < 0 || len(fields) < from+n || size(fields[from]) == nil || !allNumeric(fields[from:from+n]) {
			continue
		}
		cells = map[string]string{}
		for i, name := range c.names {
			cells[name] = fields[from+i]
		}
		return cells, false
	}
	left := fields[min(c.before, len(fields)):]
	return nil, len(left) > 0 && len(left) < n && (len(left) > 1 || l.cut) && size(left[0]) != nil && allNumeric(left)
}

func allNumeric(fields []string) bool {
	for _, f := range fields {
		if !numeric(f) {
			return false
		}
	}
	return true
}
