package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	label "k8s.io/apimachinery/pkg/util/validation"
	sigsyaml "sigs.k8s.io/yaml"
)

// TestLint runs `helm lint` with every values file.
func TestLint(t *testing.T) {
	for name, text := range values(t) {
		vals := map[string]any{}
		if err := sigsyaml.Unmarshal(text, &vals); err != nil {
			t.Fatal(err)
		}
		result := lint.AllWithKubeVersion(chartDir, vals, namespace, nil)
		for _, m := range result.Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// TestVersions: the chart and every image have this version; no image is without a version.
func TestVersions(t *testing.T) {
	text, err := os.ReadFile(root + "/VERSION")
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(text))
	if m := loadChart(t).Metadata; m.AppVersion != version || m.Version != version {
		t.Errorf("the chart is %s of railscope %s, want %s", m.Version, m.AppVersion, version)
	}
	for _, doc := range []string{"README.md", "docs/install.md", "docs/kubernetes.md"} {
		text, err := os.ReadFile(filepath.Join(root, doc))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "docker run ") && !strings.Contains(line,
				" ghcr.io/railscope/railscope:v"+version) {
				t.Errorf("%s: %s", doc, line)
			}
		}
	}
	for _, dir := range overlays(t) {
		if !strings.Contains(build(t, dir), "image: ghcr.io/railscope/railscope:v"+version+"\n") {
			t.Errorf("%s has another image than v%s", dir, version)
		}
	}
}

// TestPeers: pods find each other in DNS, unless a file lists the nodes.
func TestPeers(t *testing.T) {
	c := loadChart(t)
	const own = "dns+railscope-peers:10092"
	for _, tc := range []struct{ written, want []string }{
		{nil, []string{own}},
		{[]string{"spark-02", "dns+others:1", "file1:7"}, []string{own, "spark-02", "dns+others:1", "file1:7"}},
		{[]string{"file:/peers/*.yml"}, []string{"file:/peers/*.yml"}},
		{[]string{"spark-02", "file:/peers/*.yml"}, []string{"spark-02", "file:/peers/*.yml"}},
	} {
		vals, err := sigsyaml.Marshal(map[string]any{"rdma": map[string]any{"access": "privileged"}, "probe": map[string]any{
			"enabled": true, "tokenSecret": map[string]any{"name": "t"}, "peers": append([]string{}, tc.written...)}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := template(c, vals)
		if err != nil {
			t.Fatal(err)
		}
		var config struct{ Probe struct{ Peers []string } }
		if err := sigsyaml.Unmarshal([]byte(configuration(t, decode(t, "peers", text))), &config); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, config.Probe.Peers); diff != "" {
			t.Errorf("%q: %s", tc.written, diff)
		}
	}
}

// TestRefused: values that cannot work are rejected, and the error names valid ones.
func TestRefused(t *testing.T) {
	c := loadChart(t)
	const probe = "probe: {enabled: true, tokenSecret: {name: t}}\n"
	for _, tc := range []struct{ why, values, says string }{
		{"an unknown word", "rdma: {access: priviledged}",
			"at '/rdma/access': value must be one of 'none', 'devicePlugin', 'privileged'"},
		{"an unknown key", "hostNetwork: false", "additional properties 'hostNetwork' not allowed"},
		{"an unknown key, deep", "probe: {tokenSecrt: {}}",
			"at '/probe': additional properties 'tokenSecrt' not allowed"},
		{"a GPU", "resources: {limits: {nvidia.com/gpu: 1}}",
			"resources.limits: nvidia.com/gpu would reserve a GPU; remove it and set gpu.enabled, which reads all GPUs"},
		{"a GPU as an RDMA device", "rdma: {resources: [nvidia.com/gpu]}",
			"rdma.resources: nvidia.com/gpu would reserve a GPU; remove it and set gpu.enabled, which reads all GPUs"},
		{"a part of a GPU", "resources: {limits: {nvidia.com/mig-1g.5gb: 1}}",
			"resources.limits: nvidia.com/mig-1g.5gb would reserve a GPU"},
		{"a GPU of AMD", "resources: {limits: {amd.com/gpu: 1}}",
			"resources.limits: amd.com/gpu would reserve a GPU; remove it and set gpu.enabled, which reads all GPUs"},
		{"a partition of a GPU of AMD", "resources: {requests: {amd.com/cpx_nps4: 1}}",
			"resources.requests: amd.com/cpx_nps4 would reserve a GPU"},
		{"more depth than there is", "probe: {options: {depth: 1000}}",
			"at '/probe/options/depth': maximum: got 1,000, want 128"},
		{"a resource without a domain", "rdma: {resources: [hca]}",
			"at '/rdma/resources/0': 'hca' does not match pattern"},
		{"no resource", "rdma: {resources: []}", "at '/rdma/resources': minItems: got 0, want 1"},
		{"a port that is a word", "port: metrics", "at '/port': got string, want integer"},
		{"a port too high", "port: 70000", "at '/port': maximum: got 70,000, want 65,535"},
		{"a port of the privileged", "port: 80", "at '/port': minimum: got 80, want 1,024"},
		{"a port of the privileged, for peers", "probe: {port: 443}", "at '/probe/port': minimum: got 443, want 1,024"},
		{"an invalid name", "fullnameOverride: Rail_Scope",
			"at '/fullnameOverride': 'Rail_Scope' does not match pattern"},
		{"a name too long", "fullnameOverride: " + strings.Repeat("a", 52),
			"at '/fullnameOverride': maxLength: got 52, want 51"},
		{"an invalid digest", "image: {digest: abc}", "at '/image/digest': 'abc' does not match pattern"},
		{"a capability too many", "capabilities: [SYS_ADMIN]",
			"at '/capabilities/0': value must be one of 'NET_ADMIN', 'NET_RAW', 'SYS_PTRACE'"},
		{"an argument that is no flag", "extraArgs: [source.nccl]",
			"at '/extraArgs/0': 'source.nccl' does not match pattern"},
		{"a label that is no word", "podLabels: {a: true}", "at '/podLabels/a': got boolean, want string"},
		{"a rail that is no port", "rails: {names: {east: mlx5_0/x}}",
			"at '/rails/names/east': 'mlx5_0/x' does not match pattern"},
		{"a rail with a blank in its name", "rails: {names: {'a b': mlx5_0/1}}",
			"at '/rails/names': additional properties 'a b' not allowed"},
		{"two monitors", "podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}",
			"podMonitor.enabled and serviceMonitor.enabled would scrape every node twice: enable one"},
		{"a DNS policy that does not exist", "dnsPolicy: Host", "at '/dnsPolicy': value must be one of"},
		{"a rate without a unit", "expect: {rate: '400'}", "at '/expect/rate': '400' does not match pattern"},
		{"a relative maintenance directory", "maintenance: {hostPath: run/railscope}",
			"at '/maintenance/hostPath': 'run/railscope' does not match pattern"},
		{"an option of the chart", "probe: {options: {listen: ':1'}}",
			"at '/probe/options': additional properties 'listen' not allowed"},
		{"an invalid interval", "probe: {options: {interval: 1 minute}}",
			"at '/probe/options/interval': '1 minute' does not match pattern"},
		{"a traffic class too large", "probe: {options: {traffic_class: 256}}", "at '/probe/options/traffic_class'"},
		{"a service level in words", "probe: {options: {service_level: gold}}", "at '/probe/options/service_level'"},
		{"no partition", "probe: {options: {pkey: 0}}", "at '/probe/options/pkey': minimum: got 0, want 1"},
		{"a probe without devices", probe,
			"probe.enabled requires rdma.access devicePlugin or privileged: without RDMA devices every round uses TCP"},
		{"a probe without a token", "probe: {enabled: true}\nrdma: {access: privileged}",
			"probe.enabled requires probe.tokenSecret.name"},
		{"devices without a probe", "rdma: {access: privileged}",
			"rdma.access privileged without probe.enabled: only the probe uses RDMA devices; set rdma.access: none"},
		{"a removed section", "gpu: null", "missing property 'gpu'"},
		{"a variable without a name", "extraEnv: [{nam: A, value: b}]", "at '/extraEnv/0': missing property 'name'"},
		{"a variable with a number", "extraEnv: [{name: A, value: 1}]",
			"at '/extraEnv/0/value': got number, want string"},
		{"the chart's own variable", "extraEnv: [{name: RAILSCOPE_NODE_NAME, value: a}]",
			"extraEnv: RAILSCOPE_NODE_NAME is set by the chart; use its values instead"},
		{"a flag twice", "extraArgs: [--source.nccl, --log.level=debug]",
			"extraArgs: --log.level=debug is set by the chart and cannot be repeated; use its values instead"},
		{"a source of the chart", "extraArgs: [--source.gpu.processes, --no-source.gpu]",
			"extraArgs: --no-source.gpu is set by the chart and cannot be repeated; use its values instead"},
		{"a source of the chart, as node_exporter spells it", "extraArgs: [--collector.process=true]",
			"extraArgs: --collector.process=true is set by the chart and cannot be repeated"},
		{"another state directory", "extraArgs: [--state.dir=/x]",
			"extraArgs: --state.dir=/x is set by the chart and cannot be repeated"},
		{"a second port", "extraArgs: ['--web.listen-address=:9']",
			"extraArgs: --web.listen-address=:9 is set by the chart and cannot be repeated"},
		{"a password for the kubelet", "extraArgs: [--web.config.file=/x]",
			"extraArgs: --web.config.file=/x would break health checks and the PodMonitor; set web.config instead"},
		{"a password for the kubelet, by a variable", "extraEnv: [{name: RAILSCOPE_WEB_CONFIG_FILE, value: /x}]",
			"extraEnv: RAILSCOPE_WEB_CONFIG_FILE would break health checks or the PodMonitor"},
		{"metrics elsewhere", "extraArgs: [--web.telemetry-path=/m]",
			"extraArgs: --web.telemetry-path=/m would break the PodMonitor, which scrapes /metrics on port 10091"},
		{"a password in the clear", "web: {config: {basic_auth_users: {prometheus: sesame}}}",
			"at '/web/config/basic_auth_users/prometheus': 'sesame' does not match pattern"},
		{"a key of no web configuration", "web: {config: {tls: {}}}",
			"at '/web/config': additional properties 'tls' not allowed"},
		{"certificates for nothing", "web: {certificateSecret: tls}",
			"web.certificateSecret without web.config: its files are not used"},
		{"TLS that Prometheus does not trust",
			"web: {config: {tls_server_config: {cert_file: a, key_file: b}}}\npodMonitor: {enabled: true}",
			"podMonitor.tlsConfig is empty, so Prometheus would reject the certificate"},
		{"a certificate that Prometheus lacks",
			"web: {config: {tls_server_config: {client_auth_type: RequireAndVerifyClientCert}}}\npodMonitor: " +
				"{enabled: true, tlsConfig: {insecureSkipVerify: true}}",
			"web.config requires client certificates: set podMonitor.tlsConfig.cert and podMonitor.tlsConfig.keySecret"},
		{"a password that Prometheus lacks", "web: {config: {basic_auth_users: {a: $2y$10$" + strings.Repeat("a",
			53) + "}}}\npodMonitor: {enabled: true}", "web.config has basic_auth_users: set podMonitor.basicAuth"},
		{"half a password", "podMonitor: {basicAuth: {username: {name: a, key: b}}}", "at '/podMonitor/basicAuth'"},
		{"TLS that pods do not speak", "podMonitor: {enabled: true, tlsConfig: {insecureSkipVerify: true}}",
			"podMonitor.tlsConfig without web.config.tls_server_config"},
		{"a password for nobody",
			"podMonitor: {enabled: true, basicAuth: {username: {name: a, key: b}, password: {name: a, key: c}}}",
			"podMonitor.basicAuth without web.config.basic_auth_users"},
		{"an unknown threshold", "prometheusRule: {enabled: true, thresholds: {goodput: 0.6}}",
			"prometheusRule.thresholds: unknown threshold goodput; the thresholds are ack_timeouts_per_minute, "},
		{"an unknown alert", "prometheusRule: {enabled: true, disable: [RailscopeRailGone]}",
			"prometheusRule.disable: unknown alert RailscopeRailGone; the alerts and groups are RailscopeBondDegraded, "},
		{"a threshold in words", "prometheusRule: {thresholds: {goodput_ratio: low}}",
			"at '/prometheusRule/thresholds/goodput_ratio': got string, want number"},
		{"no pool", probe + "rdma: {access: devicePlugin, resources: null}",
			"at '/rdma': missing property 'resources'"},
		{"one port for both", probe + "rdma: {access: privileged}\nport: 10092",
			"port and probe.port are both 10092: they must differ"},
	} {
		_, err := template(c, []byte(tc.values))
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v\nwant %q", tc.why, err, tc.says)
		}
	}
}

// TestOdd renders unusual values as Helm does: null removes a default, and the chart's labels cannot be overridden.
func TestOdd(t *testing.T) {
	c := loadChart(t)
	const devices = "rdma: {access: devicePlugin}\nprobe: {enabled: true, tokenSecret: {name: t}, peers: null, " +
		"options: null}\n"
	for name, vals := range map[string]string{
		"no resources":             "resources: null",
		"no resources but devices": devices + "resources: null",
		"no limits":                devices + "resources: {limits: null}",
		"no capabilities":          devices + "capabilities: null",
		"no strategy and grace": "updateStrategy: null\nterminationGracePeriodSeconds: null\n" +
			"priorityClassName: null",
		"no lists": "tolerations: null\naffinity: null\nnodeSelector: null\n" +
			"imagePullSecrets: null\nextraArgs: null\npodLabels: null",
		"labels of the chart": "podLabels: {app.kubernetes.io/name: x, app.kubernetes.io/instance: x}",
		"labels of the chart, elsewhere": "podMonitor: {enabled: true, labels: &l {app.kubernetes.io/name: x}}\n" +
			"prometheusRule: {enabled: true, labels: *l}\ndashboards: {enabled: true, labels: *l}",
		"annotations of the chart": "podAnnotations: {checksum/config: x}",
		"a rail with _ first":      "rails: {names: {_a: mlx5_0/1}}",
		"a rail by PCI address":    "rails: {names: {'1': '0000:3a:00.0', b: '0000:3a:00.0/2'}}",
		"RDMA devices of NVIDIA's": "resources: {limits: {nvidia.com/hostdev: 1}}",
		"RDMA devices of AMD's":    "resources: {limits: {amd.com/nic: 1}}",
		"a short interval":         "podMonitor: {enabled: true, interval: 5s}",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := templateAs(c, "railscope", []byte(vals), engine.Engine{})
			if err != nil {
				t.Fatal(err)
			}
			list := decode(t, name, text)
			ds := only[apps.DaemonSet](t, list)
			checkSelectors(t, list, ds)
			checkPorts(t, list, ds.Spec.Template.Spec)
			if _, ok := rdmaResource(ds.Spec.Template.Spec.Containers[0]); ok != strings.HasPrefix(vals, devices) {
				t.Errorf("limits are %v", ds.Spec.Template.Spec.Containers[0].Resources.Limits)
			}
			if sum := ds.Spec.Template.Annotations["checksum/config"]; len(sum) != 64 {
				t.Errorf("the checksum of the configuration is %q", sum)
			}
			for _, s := range scrapes(list) {
				// Omit the timeout if it would exceed the interval.
				if s.timeout != "" {
					t.Errorf("a scrape may take %s", s.timeout)
				}
			}
		})
	}
}

// additions are values that people add.
const additions = `maintenance: {annotation: railscope.io/maintenance}
dnsPolicy: Default
dnsConfig: {nameservers: [192.0.2.1]}
extraManifests:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: extra-object}
    data: {release: "{{ .Release.Name }}"}
  - |
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: extra-text}
    data: {release: "{{ .Release.Name }}"}
`

// TestPackage: the packaged chart renders the same output as the directory: it contains no link into the checkout.
func TestPackage(t *testing.T) {
	c := loadChart(t)
	file, err := chartutil.Save(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packed, err := loader.LoadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	vals := []byte("podMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboards: {enabled: true}\n")
	want, err := template(c, vals)
	if err != nil {
		t.Fatal(err)
	}
	got, err := template(packed, vals)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestServiceMonitor: a ServiceMonitor instead of the PodMonitor, with its settings, and with additions to the
// chart.
func TestServiceMonitor(t *testing.T) {
	c := loadChart(t)
	vals, err := os.ReadFile(chartDir + "/ci/service-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := template(c, append(vals, additions...))
	if err != nil {
		t.Fatal(err)
	}
	list := decode(t, "service", text)
	found := scrapes(list)
	if len(found) != 1 || !found[0].native || !found[0].extra || !found[0].exclusions ||
		len(all[monitoring.PodMonitor](list)) > 0 {
		t.Errorf("scraped by %+v", found)
	}
	extra := 0
	for _, o := range all[core.ConfigMap](list) {
		if strings.HasPrefix(o.Name, "extra-") {
			extra++
			if o.Data["release"] != "railscope" {
				t.Errorf("%s is %v", o.Name, o.Data)
			}
			continue
		}
		if o.Labels["team"] != "network" || o.Labels["app.kubernetes.io/name"] != "railscope" {
			t.Errorf("labels of %s: %v", o.Name, o.Labels)
		}
	}
	if extra != 2 {
		t.Errorf("%d of 2 extra manifests", extra)
	}
	ds := only[apps.DaemonSet](t, list)
	if pod := ds.Spec.Template.Spec; pod.DNSPolicy != core.DNSDefault || len(pod.DNSConfig.Nameservers) != 1 ||
		ds.Labels["team"] != "network" || ds.Spec.Selector.MatchLabels["team"] != "" {
		t.Errorf("DNS %s, %+v, labels %v", pod.DNSPolicy, pod.DNSConfig, ds.Labels)
	}
	pod := ds.Spec.Template.Spec
	mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool {
		return m.Name == "annotations" && slices.Contains(pod.Containers[0].Args,
			"--maintenance.annotation="+m.MountPath+"/maintenance")
	})
	if !mounted || !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
		return v.Name == "annotations" && v.DownwardAPI.Items[0].Path == "maintenance" &&
			v.DownwardAPI.Items[0].FieldRef.FieldPath == "metadata.annotations['railscope.io/maintenance']"
	}) {
		t.Errorf("annotation: %v, %+v", pod.Containers[0].Args, pod.Volumes)
	}
}

// TestNames: every release name that Helm accepts gives names that Kubernetes accepts, or an error says what to do.
func TestNames(t *testing.T) {
	c := loadChart(t)
	const probe = "rdma: {access: privileged}\nprobe: {enabled: true, tokenSecret: {name: t}}\ndashboards: " +
		"{enabled: true}\n"
	for _, tc := range []struct{ release, values, name, says string }{
		{release: "railscope", name: "railscope"},
		{release: "fabric", name: "fabric-railscope"},
		{release: "railscope.east", name: "railscope-east"},
		{release: "a.b", values: "nameOverride: rails", name: "a-b-rails"},
		{release: strings.Repeat("a", 53), name: strings.Repeat("a", 51)},
		{release: strings.Repeat("a", 49) + "--b", name: strings.Repeat("a", 49)},
		{release: "2nd", says: "invalid Service name 2nd-railscope-peers, it must start with a letter: set " +
			"fullnameOverride"},
		{release: "2nd", values: "fullnameOverride: second", name: "second"},
		{release: "007", values: "fullnameOverride: second", name: "second"},
	} {
		text, err := templateAs(c, tc.release, []byte(probe+tc.values), engine.Engine{Strict: true})
		if err != nil || tc.says != "" {
			if err == nil || tc.says == "" || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, %s: %v, want %q", tc.release, tc.values, err, tc.says)
			}
			continue
		}
		list := decode(t, tc.release, text)
		for _, o := range list {
			if wrong := validation.NameIsDNS1035Label(o.name, false); len(wrong) > 0 {
				t.Errorf("%s: %s %q: %v", tc.release, o.kind, o.name, wrong)
			}
		}
		ds := only[apps.DaemonSet](t, list)
		checkSelectors(t, list, ds)
		if ds.Name != tc.name {
			t.Errorf("%s, %s: %s, want %s", tc.release, tc.values, ds.Name, tc.name)
		}
		for k, v := range ds.Labels {
			if wrong := label.IsValidLabelValue(v); len(wrong) > 0 {
				t.Errorf("%s: %s=%s: %v", tc.release, k, v, wrong)
			}
		}
	}
}

// TestGolden compares the complete output of two values files and of one overlay.
func TestGolden(t *testing.T) {
	c, vals := loadChart(t), values(t)
	for _, name := range []string{"minimal", "probe"} {
		text, err := template(c, vals[name])
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/helm-"+name+".yaml", text)
	}
	golden(t, "testdata/kustomize-probe.yaml", build(t, "overlays/probe"))
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; make kubernetes ARGS=-update writes it anew):\n%s", file, diff)
	}
}

const begin, end = "<!-- generated: make kubernetes ARGS=-update -->\n", "<!-- end of what is generated -->\n"

// TestReadme: the chart's README lists every value with its default and its comment in values.yaml.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| value | default | description |\n|---|---|---|\n")
	rows(t, &table, "", doc.Content[0])
	file := filepath.Join(chartDir, "README.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	golden(t, file, before+begin+table.String()+end+after)
}

// rows writes a row for every value: for a mapping with comments inside, a row for each key.
func rows(t *testing.T, out *strings.Builder, path string, n *yaml.Node) {
	t.Helper()
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != "" {
			rows(t, out, name, value)
			continue
		}
		says := strings.TrimSpace(strings.ReplaceAll(strings.TrimPrefix(key.HeadComment, "# "), "\n# ", " "))
		if says == "" {
			t.Errorf("values.yaml says nothing of %s", name)
		}
		fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", name, inline(t, value), strings.ReplaceAll(says, "|", `\|`))
	}
}

// inline formats a value in one line.
func inline(t *testing.T, n *yaml.Node) string {
	t.Helper()
	var flow func(*yaml.Node)
	flow = func(n *yaml.Node) {
		n.Style |= yaml.FlowStyle
		n.HeadComment, n.LineComment, n.FootComment = "", "", ""
		for _, c := range n.Content {
			flow(c)
		}
	}
	if n.Kind != yaml.ScalarNode {
		flow(n)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	if err := e.Encode(n); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestUpgrade: an upgrade is possible from every set of values to every other, with the same name: fields that
// Kubernetes does not allow to change are equal in all.
func TestUpgrade(t *testing.T) {
	c := loadChart(t)
	type fixed struct {
		Name     string
		Selector map[string]string
		Cluster  string // IP of the Service, if there is one
	}
	want := fixed{Name: "railscope", Selector: map[string]string{"app.kubernetes.io/name": "railscope",
		"app.kubernetes.io/instance": "railscope"}, Cluster: "None"}
	for name, vals := range values(t) {
		text, err := template(c, append(vals, "\nnameOverride: ''\nfullnameOverride: ''\n"...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list := decode(t, name, text)
		ds := only[apps.DaemonSet](t, list)
		got := fixed{ds.Name, ds.Spec.Selector.MatchLabels, "None"}
		for _, s := range all[core.Service](list) {
			got.Cluster = s.Spec.ClusterIP
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestTunedRules: the chart tunes and disables alerts like railscope rules.
func TestTunedRules(t *testing.T) {
	text, err := template(loadChart(t), []byte("prometheusRule: {enabled: true, thresholds: {goodput_ratio: 0.6}, "+
		"disable: [RailscopeDiscards, railscope.gpu]}"))
	if err != nil {
		t.Fatal(err)
	}
	file := run(binary(t), nil, "rules", "--set=goodput_ratio=0.6", "--disable=RailscopeDiscards", "--disable=railscope.gpu")
	var want monitoring.PrometheusRuleSpec
	if err := sigsyaml.Unmarshal([]byte(file), &want); err != nil {
		t.Fatal(err)
	}
	got := only[monitoring.PrometheusRule](t, decode(t, "rules", text)).Spec
	if diff := cmp.Diff(want, got); diff != "" || len(got.Groups) == 0 {
		t.Errorf("railscope rules prints others than the chart has (-railscope rules +chart):\n%s", diff)
	}
}
