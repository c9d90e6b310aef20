"""Additions of file version 2.2: constant pages. Wider chunk words and packed rows are options of 2.1's layouts."""
