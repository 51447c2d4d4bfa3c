{{- define "labels" -}}
{app.kubernetes.io/name: lifecycle-manager}
{{- end }}

{{- define "dashboardLabels" -}}
{app.kubernetes.io/name: lifecycle-manager-dashboard}
{{- end }}

{{- define "dashboardSubjects" -}}
subjects:
  - {kind: ServiceAccount, name: lifecycle-manager-dashboard, namespace: {{ .Release.Namespace }}}
{{- end }}

{{- define "subjects" -}}
subjects:
  - {kind: ServiceAccount, name: lifecycle-manager, namespace: {{ .Release.Namespace }}}
{{- end }}

{{- /* The port in registry.host, empty without one; path and scheme are ignored. */}}
{{- define "registryPort" -}}
{{- $host := .Values.registry.host | trimPrefix "http://" | trimPrefix "https://" }}
{{- regexFind ":[0-9]+$" (first (splitList "/" $host)) | trimPrefix ":" }}
{{- end }}

{{- define "egressPorts" -}}
{{- $ports := .Values.networkPolicy.egressPorts }}
{{- with include "registryPort" . }}{{ $ports = append $ports (int .) }}{{ end }}
{{- if hasPrefix "http://" .Values.registry.host }}{{ if not (include "registryPort" .) }}{{ $ports = append $ports 80 }}{{ end }}{{ end }}
{{- range $ports | uniq }}
        - {protocol: TCP, port: {{ int . }}}
{{- end }}
{{- end }}

{{/* The tag of an image as text. Numbers of YAML are floats. */}}
{{- define "tag" -}}
{{- if kindIs "float64" . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- end }}
