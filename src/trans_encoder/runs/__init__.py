"""Resumable jobs: run folders, stages, the manifest, and the workers that do the stages. Knows nothing of teachers."""
