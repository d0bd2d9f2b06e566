{{- define "railscope.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimAll "-" }}
{{- end }}

{{- /* 51 of 63 characters leave room for suffixes. Release names may contain dots, Service names may not. */}}
{{- define "railscope.fullname" -}}
{{- $name := include "railscope.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | replace "." "-" | trunc 51 | trimAll "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 51 | trimAll "-" }}
{{- end }}
{{- end }}

{{- define "railscope.selector" -}}
app.kubernetes.io/name: {{ include "railscope.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "railscope.ownLabels" -}}
{{ include "railscope.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end }}

{{- /* Labels of every object: the chart's, which commonLabels cannot override. */}}
{{- define "railscope.labels" -}}
{{- merge (include "railscope.ownLabels" . | fromYaml) (default dict .Values.commonLabels) | toYaml }}
{{- end }}

{{- /* Labels of the chart plus (list . labels), which cannot override them. */}}
{{- define "railscope.labelsWith" -}}
{{- merge (include "railscope.labels" (first .) | fromYaml) (default dict (last .)) | toYaml }}
{{- end }}

{{- /* Scrape settings that PodMonitor and ServiceMonitor share. */}}
{{- define "railscope.scrape" -}}
port: metrics
path: /metrics
interval: {{ .Values.podMonitor.interval | quote }}
{{- with .Values.podMonitor.scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
{{- end }}
{{- if (include "railscope.web" . | fromYaml).tls }}
scheme: https
{{- end }}
{{- with .Values.podMonitor.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podMonitor.basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
# railscope's labels pod and container name the job's pod.
honorLabels: false
relabelings:
  # Alerts and dashboards identify a node by instance. Its history continues
  # when the pod is replaced.
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  # RailscopeExporterDown selects this job.
  - targetLabel: job
    replacement: railscope
  - action: labeldrop
    regex: pod|container
  {{- with .Values.podMonitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.podMonitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "railscope.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "railscope.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "railscope.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default (printf "v%s" $.Chart.AppVersion) .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* Invalid combinations of values, which the schema cannot express. */}}
{{- define "railscope.check" -}}
{{- $asked := dict "rdma.resources" .Values.rdma.resources }}
{{- range $kind, $list := .Values.resources }}{{ $_ := set $asked (printf "resources.%s" $kind) (keys (default dict $list)) }}{{ end }}
{{- range $where, $list := $asked }}
{{- range $list }}
{{- if regexMatch "^(nvidia\\.com/(gpu|mig-)|amd\\.com/(gpu$|[a-z]+_nps))" . }}
{{- fail (printf "%s: %s would reserve a GPU; remove it and set gpu.enabled, which reads all GPUs" $where .) }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.probe.enabled }}
{{- if eq .Values.rdma.access "none" }}
{{- fail "probe.enabled requires rdma.access devicePlugin or privileged: without RDMA devices every round uses TCP" }}
{{- end }}
{{- if not .Values.probe.tokenSecret.name }}
{{- fail "probe.enabled requires probe.tokenSecret.name, a Secret with the token shared by all nodes: kubectl create secret generic railscope-token --from-literal=token=\"$(head -c 24 /dev/urandom | base64)\"" }}
{{- end }}
{{- else if ne .Values.rdma.access "none" }}
{{- fail (printf "rdma.access %s without probe.enabled: only the probe uses RDMA devices; set rdma.access: none" .Values.rdma.access) }}
{{- end }}
{{- if and .Values.probe.enabled (regexMatch "^[0-9]" (include "railscope.fullname" .)) }}
{{- fail (printf "invalid Service name %s-peers, it must start with a letter: set fullnameOverride" (include "railscope.fullname" .)) }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if has .name (list "RAILSCOPE_NODE_NAME" "RAILSCOPE_CONFIG_FILE" "RAILSCOPE_STATE_DIR" "RAILSCOPE_SOURCE_GPU" "RAILSCOPE_SOURCE_PROCESS" "RAILSCOPE_PATH_ROOTFS" "NVIDIA_VISIBLE_DEVICES" "NVIDIA_DRIVER_CAPABILITIES") }}
{{- fail (printf "extraEnv: %s is set by the chart; use its values instead" .name) }}
{{- end }}
{{- if has .name (list "RAILSCOPE_WEB_CONFIG_FILE" "RAILSCOPE_WEB_TELEMETRY_PATH" "RAILSCOPE_WEB_SYSTEMD_SOCKET") }}
{{- fail (printf "extraEnv: %s would break health checks or the PodMonitor" .name) }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
{{- if regexMatch "^--(config\\.file|state\\.dir|log\\.level|log\\.format|node\\.name|web\\.listen-address|(no-)?(source|collector)\\.(gpu|process))(=|$)" . }}
{{- fail (printf "extraArgs: %s is set by the chart and cannot be repeated; use its values instead" .) }}
{{- end }}
{{- if regexMatch "^--web\\.(telemetry-path|systemd-socket)(=|$)" . }}
{{- fail (printf "extraArgs: %s would break the PodMonitor, which scrapes /metrics on port %d" . (int $.Values.port)) }}
{{- end }}
{{- if hasPrefix "--web.config.file" . }}
{{- fail (printf "extraArgs: %s would break health checks and the PodMonitor; set web.config instead" .) }}
{{- end }}
{{- end }}
{{- $web := include "railscope.web" . | fromYaml }}
{{- if and .Values.web.certificateSecret (not $web.config) }}
{{- fail "web.certificateSecret without web.config: its files are not used; set web.config.tls_server_config" }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "podMonitor.enabled and serviceMonitor.enabled would scrape every node twice: enable one" }}
{{- end }}
{{- if or .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- if and $web.tls (not .Values.podMonitor.tlsConfig) }}
{{- fail "web.config has tls_server_config but podMonitor.tlsConfig is empty, so Prometheus would reject the certificate: set its ca and serverName, or insecureSkipVerify: true" }}
{{- end }}
{{- if and $web.clientCert (not (and (get .Values.podMonitor.tlsConfig "cert") (get .Values.podMonitor.tlsConfig "keySecret"))) }}
{{- fail "web.config requires client certificates: set podMonitor.tlsConfig.cert and podMonitor.tlsConfig.keySecret, or scrapes fail" }}
{{- end }}
{{- if and $web.password (not .Values.podMonitor.basicAuth) }}
{{- fail "web.config has basic_auth_users: set podMonitor.basicAuth, or scrapes fail" }}
{{- end }}
{{- if and .Values.podMonitor.tlsConfig (not $web.tls) }}
{{- fail "podMonitor.tlsConfig without web.config.tls_server_config: the pods do not use TLS" }}
{{- end }}
{{- if and .Values.podMonitor.basicAuth (not $web.password) }}
{{- fail "podMonitor.basicAuth without web.config.basic_auth_users: Prometheus would send a password that nothing checks" }}
{{- end }}
{{- end }}
{{- if eq (int .Values.port) (int .Values.probe.port) }}
{{- fail (printf "port and probe.port are both %d: they must differ" (int .Values.port)) }}
{{- end }}
{{- end }}

{{- /* railscope.yml. */}}
{{- define "railscope.config" -}}
{{- $config := dict }}
{{- $rails := dict }}
{{- with .Values.rails.include }}{{ $_ := set $rails "include" . }}{{ end }}
{{- with .Values.rails.exclude }}{{ $_ := set $rails "exclude" . }}{{ end }}
{{- with .Values.rails.names }}{{ $_ := set $rails "names" . }}{{ end }}
{{- with .Values.rails.roles }}{{ $_ := set $rails "roles" . }}{{ end }}
{{- with .Values.rails.virtualFunctions }}{{ $_ := set $rails "virtual_functions" . }}{{ end }}
{{- if $rails }}{{ $_ := set $config "rails" $rails }}{{ end }}
{{- with .Values.expect.rate }}{{ $_ := set $config "expect" (dict "rate" .) }}{{ end }}
{{- if .Values.probe.enabled }}
{{- $peers := default list .Values.probe.peers }}
{{- if not (regexMatch "(^| )file:" (join " " $peers)) }}
{{- $peers = prepend $peers (printf "dns+%s-peers:%d" (include "railscope.fullname" .) (int .Values.probe.port)) }}
{{- end }}
{{- $probe := dict "listen" (printf ":%d" (int .Values.probe.port)) "token_file" "/run/secrets/railscope/token" "peers" $peers }}
{{- $_ := set $config "probe" (merge $probe (default dict .Values.probe.options)) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* Client requirements of web.config: config (is set), tls, clientCert, password. */}}
{{- define "railscope.web" -}}
{{- $config := default dict .Values.web.config }}
{{- $tls := default dict (get $config "tls_server_config") }}
config: {{ not (empty $config) }}
tls: {{ not (empty $tls) }}
clientCert: {{ has (get $tls "client_auth_type") (list "RequireAnyClientCert" "RequireAndVerifyClientCert") }}
password: {{ not (empty (get $config "basic_auth_users")) }}
{{- end }}

{{- /* Kubelet health check. If a password or client certificate is required, which the kubelet lacks, it only connects. */}}
{{- define "railscope.health" -}}
{{- $root := first . }}
{{- $web := include "railscope.web" $root | fromYaml }}
{{- if or $web.password $web.clientCert }}
tcpSocket:
  port: metrics
{{- else }}
httpGet:
  path: {{ last . }}
  port: metrics
  {{- if $web.tls }}
  scheme: HTTPS
  {{- end }}
{{- end }}
{{- end }}
