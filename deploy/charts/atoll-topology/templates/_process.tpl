{{/* Generated; to change it, edit its source and run: make generate */}}
{{/* Image of all processes. */}}
{{- define "atoll.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is missing: no image of Atoll is published. Build it, push it to a registry of yours (docs/image.md), then: --set image.repository=registry.example.org/atoll" -}}
{{- end -}}
{{- if $image.digest -}}{{ $image.repository }}@{{ $image.digest }}{{- else -}}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{- end -}}
{{- end }}

{{/* Accounts and policies name this namespace, so no other will do but for an embedded host, which has its own API. */}}
{{- define "atoll.namespace" -}}
{{- $embedded := (.Values.host | default dict).mode | default "" | eq "embedded" -}}
{{- if and (ne .Release.Namespace "atoll-system") (not $embedded) -}}
{{- fail (printf "namespace %s: install %s with --namespace atoll-system --create-namespace; Atoll's accounts and policies name that namespace" .Release.Namespace .Chart.Name) -}}
{{- end -}}
{{ .Release.Namespace }}
{{- end }}

{{- define "atoll.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "atoll.labels" -}}
{{ include "atoll.selector" . }}
app.kubernetes.io/part-of: atoll
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "atoll.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "atoll.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "atoll.proxy" -}}
{{- range $name, $value := dict "HTTPS_PROXY" .https "HTTP_PROXY" .http "NO_PROXY" .exceptions }}
{{- if $value }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* What pods of processes and of hooks share. */}}
{{- define "atoll.scheduling" -}}
{{- with .imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What a process and a run of its program before it share. root; program; values: its block; args; mounts. */}}
{{- define "atoll.container" -}}
{{- $root := .root -}}
{{- $values := .values -}}
image: {{ include "atoll.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command:
- {{ .program }}
args:
- --health-host=0.0.0.0
- --log-level={{ $root.Values.logLevel }}
{{- if $values.settings }}
- --config=/etc/atoll/settings/settings.yaml
{{- end }}
{{- range concat .args $values.extraArgs }}
- {{ . | quote }}
{{- end }}
env:
- {name: PYTHONDONTWRITEBYTECODE, value: "1"}
{{- include "atoll.proxy" $root.Values.proxy }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
resources: {{- toYaml $values.resources | nindent 2 }}
securityContext: {{- include "atoll.containerSecurity" $root | nindent 2 }}
volumeMounts:
- {name: tmp, mountPath: /tmp}
{{- if $values.settings }}
- {name: settings, mountPath: /etc/atoll/settings, readOnly: true}
{{- end }}
{{- with concat (.mounts | default list) $values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
The Deployment of one process, its settings and its PodDisruptionBudget.
root; name; values: its block; args; ports: name to number; volumes and mounts: lists; alone: it has no lease;
tokenless: it has no account of its own;
first: name, args and mounts of a run of the same program that must end before.
*/}}
{{- define "atoll.process" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $replicas := int $values.replicas -}}
{{- if $values.settings }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}-settings
  namespace: {{ include "atoll.namespace" $root }}
  labels: {{- include "atoll.labels" . | nindent 4 }}
data:
  settings.yaml: |
    {{- toYaml $values.settings | nindent 4 }}
---
{{- end }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ include "atoll.namespace" $root }}
  labels: {{- include "atoll.labels" . | nindent 4 }}
spec:
  replicas: {{ $replicas }}
  revisionHistoryLimit: 3
  minReadySeconds: 5
  strategy:
    {{- if .alone }}
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  selector:
    matchLabels: {{- include "atoll.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "atoll.labels" . | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .name }}
        {{- with $values.settings }}
        checksum/settings: {{ toYaml . | sha256sum }}
        {{- end }}
        {{- if $root.Values.monitoring.scrapeAnnotations }}
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ .ports.health | quote }}
        {{- end }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- if .tokenless }}
      automountServiceAccountToken: false
      {{- else }}
      serviceAccountName: {{ .name }}
      {{- end }}
      securityContext: {{- include "atoll.podSecurity" $root | nindent 8 }}
      {{- include "atoll.scheduling" (dict
        "imagePullSecrets" $root.Values.imagePullSecrets
        "priorityClassName" $root.Values.priorityClassName
        "nodeSelector" ($values.nodeSelector | default $root.Values.nodeSelector)
        "tolerations" ($values.tolerations | default $root.Values.tolerations)) | nindent 6 }}
      {{- with $values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if gt $replicas 1 }}
      topologySpreadConstraints:
      {{- range $key := $root.Values.spreadOver }}
      - topologyKey: {{ $key }}
        maxSkew: 1
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels: {{- include "atoll.selector" $ | nindent 12 }}
      {{- end }}
      {{- end }}
      # Above the drain, and the webhook's linger.
      terminationGracePeriodSeconds: 30
      {{- with .first }}
      initContainers:
      - name: {{ .name }}
        {{- include "atoll.container" (dict "root" $root "program" $.name "values" $values "args" .args "mounts" .mounts) | nindent 8 }}
      {{- end }}
      containers:
      - name: {{ .name }}
        {{- include "atoll.container" (dict "root" $root "program" .name "values" $values "args" .args "mounts" .mounts) | nindent 8 }}
        ports:
        {{- range $port, $number := .ports }}
        - {name: {{ $port }}, containerPort: {{ $number }}}
        {{- end }}
        # Health never depends on an API server; readiness does.
        startupProbe:
          httpGet: {path: /healthz, port: health}
          periodSeconds: 2
          timeoutSeconds: 5
          failureThreshold: 60
        livenessProbe:
          httpGet: {path: /healthz, port: health}
          periodSeconds: 10
          timeoutSeconds: 5
          failureThreshold: 6
        readinessProbe:
          httpGet: {path: /readyz, port: health}
          periodSeconds: 5
          timeoutSeconds: 5
          failureThreshold: 3
      volumes:
      - name: tmp
        emptyDir: {sizeLimit: 64Mi}
      {{- if $values.settings }}
      - name: settings
        configMap: {name: {{ .name }}-settings}
      {{- end }}
      {{- with concat (.volumes | default list) $values.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- if gt $replicas 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ include "atoll.namespace" $root }}
  labels: {{- include "atoll.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "atoll.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/*
A Job of a hook, or with kind Pod the test.
root; name: of the step; hooks: comma-separated; weight; args; volumes and mounts.
*/}}
{{- define "atoll.hook" -}}
{{- $root := .root -}}
{{- $labels := dict "root" $root "name" "atoll-installer" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: atoll-installer-{{ .name }}
  namespace: {{ include "atoll.namespace" $root }}
  labels: {{- include "atoll.labels" $labels | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .hooks }}
    helm.sh/hook-weight: "10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: {{ .retries | default 4 }}
  activeDeadlineSeconds: 600
  ttlSecondsAfterFinished: 3600
  template:
    metadata:
      labels: {{- include "atoll.labels" $labels | nindent 8 }}
    spec: {{- include "atoll.hookPod" . | nindent 6 }}
{{- end }}

{{- define "atoll.hookPod" -}}
{{- $root := .root -}}
serviceAccountName: atoll-installer
restartPolicy: Never
securityContext: {{- include "atoll.podSecurity" $root | nindent 2 }}
{{ include "atoll.scheduling" $root.Values }}
containers:
- name: atollctl
  image: {{ include "atoll.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [atollctl, hooks]
  args:
  {{- range .args }}
  - {{ . | quote }}
  {{- end }}
  env:
  - {name: HOME, value: /tmp}
  {{- include "atoll.proxy" $root.Values.proxy | nindent 2 }}
  {{- with $root.Values.hooks.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  resources: {{- toYaml $root.Values.hooks.resources | nindent 4 }}
  securityContext: {{- include "atoll.containerSecurity" $root | nindent 4 }}
  volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- with .mounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- with .volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
