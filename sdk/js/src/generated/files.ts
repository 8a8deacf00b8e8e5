// Generated from api/openapi.json by `make models`; do not edit.
// The files of the API.

/** A file of a list. */
export interface FileSummary {
  id: string;
  name: string;
  size_bytes: number;
  content_type: string;
  /** When its bytes were uploaded, RFC 3339. */
  uploaded_at: string;
}
