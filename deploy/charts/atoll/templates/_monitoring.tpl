{{/* A PodMonitor for each process: the alerts expect jobs with the names of the processes. */}}
{{- define "atoll.podMonitor" -}}
{{- $monitor := .Values.monitoring.podMonitor -}}
{{- if $monitor.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .Chart.Name }}
  namespace: {{ include "atoll.namespace" . }}
  labels:
    {{- include "atoll.labels" (dict "root" . "name" .Chart.Name) | nindent 4 }}
    {{- with $monitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  # The alerts know the processes by the names of their scrape jobs.
  jobLabel: app.kubernetes.io/name
  selector:
    matchLabels:
      app.kubernetes.io/instance: {{ .Release.Name }}
      app.kubernetes.io/part-of: atoll
  podMetricsEndpoints:
  - {port: health, interval: {{ $monitor.interval }}}
{{- end }}
{{- end }}
