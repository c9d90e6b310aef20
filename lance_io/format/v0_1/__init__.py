"""The container of FILE VERSION 0.1: footer, metadata, page table (spec: legacy 0.1, sections 1 to 4). Pure."""
