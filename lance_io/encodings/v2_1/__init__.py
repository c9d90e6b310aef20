"""Layouts of file version 2.1: mini-block, full-zip, all-null, blob. Version 2.2 extends them."""
