{{- define "device-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* 50 characters, so that a name with the chart's longest suffix is still a DNS label. */}}
{{- define "device-operator.fullname" -}}
{{- $name := include "device-operator.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "device-operator.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "device-operator.operatorServiceAccount" -}}
{{- default (include "device-operator.fullname" .) .Values.operator.serviceAccount.name }}
{{- end }}

{{- define "device-operator.agentServiceAccount" -}}
{{- default (printf "%s-agent" (include "device-operator.fullname" .)) .Values.agent.serviceAccount.name }}
{{- end }}

{{- define "device-operator.commonLabels" -}}
app.kubernetes.io/name: {{ include "device-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: device-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Annotations of what agents need. While crds.keep is true, it stays with the configurations when the release is
uninstalled: otherwise no agent pod could be created any more. Takes (list root annotations). */}}
{{- define "device-operator.agentAnnotations" -}}
{{- $annotations := dict }}
{{- if (index . 0).Values.crds.keep }}
{{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
{{- end }}
{{- with merge $annotations (deepCopy (index . 1)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Never changes between versions of the chart: a Deployment's selector is immutable. */}}
{{- define "device-operator.operatorSelector" -}}
app.kubernetes.io/name: {{ include "device-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- /* An image reference from repository, tag and digest; the digest wins, because it names the bytes. */}}
{{- define "device-operator.image" -}}
{{- $image := .image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}
