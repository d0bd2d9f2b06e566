package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// dashboard is the part of Grafana's JSON that the checks need.
type dashboard struct {
	file string

	UID, Title, Description string
	SchemaVersion           int
	Editable                bool
	Tags                    []string
	Panels                  []panel
	Templating              struct{ List []variable }
	Annotations             struct{ List []annotation }
	Links                   []struct {
		Type, URL             string
		IncludeVars, KeepTime bool
		Tags                  []string
	}
	Inputs   []struct{ Name, PluginID string } `json:"__inputs"`
	Requires []struct{ Type, ID string }       `json:"__requires"`
}

type variable struct {
	Name, Type, Label, AllValue, Definition string
	Multi, IncludeAll                       bool
	Refresh                                 int
	Datasource                              source
	Query                                   any // a string, or an object with query
}

type annotation struct {
	Name, Expr string
	Datasource source
	Target     struct{ Expr string }
}

type source struct{ Type, UID string }

type panel struct {
	ID                               int
	Type, Title, Description, Repeat string
	Interval                         string
	MaxPerRow                        int
	GridPos                          struct{ X, Y, W, H int }
	Datasource                       source
	Targets                          []target
	FieldConfig                      struct {
		Defaults  fields
		Overrides []struct {
			Matcher    struct{ ID, Options string }
			Properties []struct {
				ID    string
				Value any
			}
		}
	}
	Transformations []struct {
		ID      string
		Options map[string]any
	}
	Options struct{ TextMode string }
	Panels  []panel // panels of a collapsed row
}

type fields struct {
	Unit     string
	Links    []link
	Mappings []any
	Color    struct{ Mode string }
}

type link struct{ Title, URL string }

type target struct {
	RefID, Expr, LegendFormat, Format string
	Instant, Range                    bool
	Datasource                        source
}

// name identifies a panel in messages.
func (p panel) name() string { return fmt.Sprintf("%d %s", p.ID, p.Title) }

// all returns the panels, including those of collapsed rows, without the rows.
func (d dashboard) all() []panel {
	var all []panel
	for _, p := range d.Panels {
		if p.Type == "row" {
			all = append(all, p.Panels...)
		} else {
			all = append(all, p)
		}
	}
	return all
}

// load reads the dashboards of a variant: provisioning or grafana.com.
func load(t *testing.T, flavour string) []dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "dashboards", flavour, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards in %s: %v", flavour, err)
	}
	var all []dashboard
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := dashboard{file: filepath.Base(file)}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

// each runs check on every panel of every dashboard of a variant.
func each(t *testing.T, flavour string, check func(t *testing.T, d dashboard, p panel)) {
	t.Helper()
	for _, d := range load(t, flavour) {
		for _, p := range d.all() {
			t.Run(d.UID+"/"+p.name(), func(t *testing.T) { check(t, d, p) })
		}
	}
}
