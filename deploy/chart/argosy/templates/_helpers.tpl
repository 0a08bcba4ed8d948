{{- define "argosy.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: argocd
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "argosy.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "argosy.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "argosy.param" -}}
- name: {{ index . 0 }}
  valueFrom: {configMapKeyRef: {name: {{ index . 1 }}, key: {{ index . 2 }}, optional: true}}
{{- end }}
