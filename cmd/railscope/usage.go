package main

// usage is the template of the help. Of a command it shows that command, its own flags first; without one, all
// commands, because serve may be left out.
const usage = `{{define "args"}}{{with .FlagSummary}} {{.}}{{end -}}
{{range .Args}} {{if .Required}}<{{.Name}}>{{else -}}
[<{{.Name}}>{{if .Value | IsCumulative}}...{{end}}]{{end}}{{end}}{{end -}}

{{with .Context.SelectedCommand -}}
usage: {{$.App.Name}} {{.FullCommand}}{{template "args" .}}

{{.Help | Wrap 0}}
{{with .Args -}}
Args:
{{. | ArgsToTwoColumns | FormatTwoColumns}}
{{end -}}
{{with .Flags -}}
Flags:
{{. | FlagsToTwoColumns | FormatTwoColumns}}
{{end -}}
Global flags:
{{$.App.Flags | FlagsToTwoColumns | FormatTwoColumns}}
{{- else -}}
usage: {{.App.Name}} [<flags>] <command> [<args> ...]

{{.App.Help | Wrap 0}}
Flags:
{{.App.Flags | FlagsToTwoColumns | FormatTwoColumns}}
Commands:
{{range .App.Commands -}}
{{if not .Hidden}}{{.FullCommand}}{{template "args" .}}
{{.Help | Wrap 4}}
{{with .Flags | FlagsToTwoColumns}}{{FormatTwoColumnsWithIndent . 4 2}}{{end}}
{{end}}{{end}}{{end}}`
