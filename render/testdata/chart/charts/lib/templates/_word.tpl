{{- define "lib.word" -}}word of {{ .Chart.Name }}{{- end -}}
