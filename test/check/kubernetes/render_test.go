package kubernetes

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	sigsyaml "sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the goldens and the table of the chart's README anew")

const (
	root      = "../../.."
	chartDir  = root + "/deploy/helm/railscope"
	kustomize = root + "/deploy/kubernetes"
	namespace = "monitoring" // namespace of releases in tests
)

// values returns the values files of the chart, by name.
func values(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/ci/*-values.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d values files: %v", len(files), err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = text
	}
	return all
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// template does the same as `helm template railscope`: the schema check, then the templates. It returns them
// without NOTES.txt. Unlike Helm it rejects values that values.yaml does not have.
func template(c *chart.Chart, vals []byte) (string, error) {
	return templateAs(c, "railscope", vals, engine.Engine{Strict: true})
}

func templateAs(c *chart.Chart, release string, vals []byte, e engine.Engine) (string, error) {
	v, err := chartutil.ReadValues(vals)
	if err != nil {
		return "", err
	}
	merged, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: release, Namespace: namespace,
		IsInstall: true}, nil)
	if err != nil {
		return "", err
	}
	files, err := e.Render(c, merged)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(&out, "---\n# %s\n%s\n", name, strings.TrimSpace(files[name]))
		}
	}
	return out.String(), nil
}

// build does the same as `kubectl kustomize`.
func build(t *testing.T, dir string) string {
	t.Helper()
	opts := krusty.MakeDefaultOptions()
	opts.LoadRestrictions = types.LoadRestrictionsRootOnly // as kubectl does
	resources, err := krusty.MakeKustomizer(opts).Run(filesys.MakeFsOnDisk(), filepath.Join(kustomize, dir))
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// overlays are the kustomizations that users install.
func overlays(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(kustomize + "/overlays/*/kustomization.yaml")
	if err != nil || len(list) < 2 {
		t.Fatalf("%d overlays: %v", len(list), err)
	}
	dirs := []string{"base"}
	for _, file := range list {
		dirs = append(dirs, "overlays/"+filepath.Base(filepath.Dir(file)))
	}
	return dirs
}

// rendered returns every installation, by its source.
func rendered(t *testing.T) map[string][]object {
	t.Helper()
	c := loadChart(t)
	all := map[string][]object{}
	for name, vals := range values(t) {
		text, err := template(c, vals)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all["helm/"+name] = decode(t, name, text)
	}
	for _, dir := range overlays(t) {
		all["kustomize/"+dir] = decode(t, dir, build(t, dir))
	}
	return all
}

// object is a resource with its decoded value.
type object struct {
	kind, name, namespace string
	value                 any // pointer to the type
}

// decode decodes every document into its type, and rejects unknown fields.
func decode(t *testing.T, from, text string) (list []object) {
	t.Helper()
	docs := yaml.NewYAMLReader(newReader(text))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		if err := sigsyaml.Unmarshal(doc, &head); err != nil {
			t.Fatalf("%s: %v\n%s", from, err, doc)
		}
		if head.Kind == "" && !strings.Contains(string(doc), "\n  ") {
			continue // only comments
		}
		value := newObject(head.APIVersion + " " + head.Kind)
		if value == nil {
			t.Fatalf("%s: a resource of no type that we know: %s %s", from, head.APIVersion, head.Kind)
		}
		if err := sigsyaml.UnmarshalStrict(doc, value); err != nil {
			t.Errorf("%s, %s %s: %v", from, head.Kind, head.Metadata.Name, err)
		}
		list = append(list, object{head.Kind, head.Metadata.Name, head.Metadata.Namespace, value})
	}
}
